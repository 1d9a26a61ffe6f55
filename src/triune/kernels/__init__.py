"""Attention from roles: `reference` is the truth, `dispatch` says which core runs and why."""
