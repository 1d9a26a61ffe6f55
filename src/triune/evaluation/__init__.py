"""Answers and labels held against the truth, with the official figures."""
