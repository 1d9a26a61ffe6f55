"""Pre-training on transformers' Trainer: recipes, masking, sealed checkpoints, run folders."""
