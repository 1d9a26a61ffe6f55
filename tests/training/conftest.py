# A model and a run so small that a step takes milliseconds.
TINY = [
    "model.operator_settings={}",
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "model.feed_forward=32",
    "model.hidden_dropout=0.1",  # so that random states matter
    "model.attention_dropout=0.1",
    "data.block_length=16",
    "training.sequences=8",
    "training.per_device=8",
    "training.steps=24",
    "training.log_every=2",
    "training.evaluate_every=12",
    "training.evaluate_blocks=16",
    "training.checkpoint_every=5",
]
