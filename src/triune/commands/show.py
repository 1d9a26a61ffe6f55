"""How verbs print."""

import sys
from typing import Any


def show(tables: list[Any]) -> None:
    from rich.console import Console

    # A pipe has no width of its own: give tables room there rather than fold them at 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for table in tables:
        table.print_to(console)
