"""Trainer's reporters (TensorBoard, wandb, …), checked before a run begins."""

from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from triune.errors import TriuneError, one_line


def check_reporter(name: str) -> None:
    """A reporter that is not known or not installed is one line, and nothing has been written yet."""
    if name == "none":
        return
    if name not in INTEGRATION_TO_CALLBACK:
        known = ", ".join(["none", *sorted(INTEGRATION_TO_CALLBACK)])
        raise TriuneError(f"unknown reporter '{name}' for --report-to; there are: {known}")
    try:
        INTEGRATION_TO_CALLBACK[name]()
    except (RuntimeError, ImportError) as error:
        raise TriuneError(f"cannot report to '{name}': {one_line(error)}") from error
