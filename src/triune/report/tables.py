"""Tables made once, shown on a terminal or written as Markdown."""

from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text_columns: int = 1  # so many columns hold text and are set left; the others hold figures
    pinned: int = 0  # so many of the last rows stand for the others (means, the paper's) and are not sorted among them
    # (row, column) of a figure → the files of the records that it came from, as the records name them ("file").
    sources: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)

    def is_text(self, column: int) -> bool:
        return column < self.text_columns

    def link(self, file: str | None) -> None:
        """All figures come from one record."""
        if file:
            figures = range(self.text_columns, len(self.columns))
            self.sources |= {(row, column): (file,) for row in range(len(self.rows)) for column in figures}

    def to_markdown(self) -> str:
        lines = [f"### {markdown_text(self.title)}", "", _markdown_row(self.columns)]
        lines.append("|" + "|".join("---" if self.is_text(n) else "---:" for n in range(len(self.columns))) + "|")
        lines += [_markdown_row(row) for row in self.rows]
        for note in self.notes:
            lines += ["", markdown_text(note)]
        return "\n".join(lines) + "\n"

    def print_to(self, console: Console) -> None:
        table = RichTable(title=escape(self.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for number, column in enumerate(self.columns):
            table.add_column(escape(column), no_wrap=number == 0, justify="left" if self.is_text(number) else "right")
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
        for note in self.notes:
            console.print(escape(note), style="dim")
        if self.notes:
            console.print()


def markdown_text(text: str) -> str:
    """Text from data as text: no HTML, no links, no second line."""
    return " ".join(text.splitlines()).replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"
