"""The one-tensor kernels' place taken by their reference, so that what leads to them is tested without a GPU."""

from triune.kernels import one_tensor
from triune.kernels.one_tensor.reference import one_tensor_reference


def stand_in(monkeypatch, unsupported=lambda device, dtype, head_width: None):
    """A list that gets the options of every call."""
    calls = []

    def attention(*tensors, **options):
        calls.append(options)
        return one_tensor_reference(*tensors, **{**options, "dropout": 0.0})

    monkeypatch.setattr(one_tensor, "unsupported", unsupported)
    monkeypatch.setattr(one_tensor, "attention", attention)
    return calls
