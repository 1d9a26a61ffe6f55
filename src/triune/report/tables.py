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

    def _is_text(self, column: int) -> bool:
        return column < self.text_columns

    def to_markdown(self) -> str:
        lines = [f"### {self.title}", "", _markdown_row(self.columns)]
        lines.append("|" + "|".join("---" if self._is_text(n) else "---:" for n in range(len(self.columns))) + "|")
        lines += [_markdown_row(row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"

    def print_to(self, console: Console) -> None:
        table = RichTable(title=escape(self.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for number, column in enumerate(self.columns):
            table.add_column(escape(column), no_wrap=number == 0, justify="left" if self._is_text(number) else "right")
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
        for note in self.notes:
            console.print(escape(note), style="dim")
        if self.notes:
            console.print()


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
