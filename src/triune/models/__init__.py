"""The transformers-compatible model family: BERT on any registered operator."""
