"""What the figures of matplotlib have in common: the same input gives the same file, and text is shown as it is."""

import io
from pathlib import Path
from typing import Any

from triune.files import write_bytes
from triune.report.colours import palette


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "triune"  # the same figure is the same file
    import matplotlib.pyplot as plt

    return plt


def save_figure(figure: Any, out: Path, dpi: float = 150) -> None:
    """In the format that the suffix of `out` names."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=out.suffix[1:], dpi=dpi, metadata={"Date": None} if out.suffix == ".svg" else None)
    pyplot().close(figure)
    write_bytes(out, drawn.getvalue())


def plain(text: str) -> str:
    """Text from data: matplotlib would read what stands between dollar signs as a formula."""
    return text.replace("$", r"\$")


def coloured(models: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Each model with its colour on white, the operator's own where it is free."""
    colours = palette({model["model"]: model["operator"] for model in models})
    return [(model, on_white) for model, (on_white, _) in zip(models, colours, strict=True)]
