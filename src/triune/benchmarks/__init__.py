"""Measurements: parameters now; FLOPs, step time and kernels as they come."""
