"""Measurements: parameters, FLOPs, epochs of fine-tuning, and what `triune bench` sets side by side."""
