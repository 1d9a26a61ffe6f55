"""How far a plan is: on a terminal a bar for the whole and one for the stage, and everywhere a line for each cell."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from triune.cells import Cell, Record

Done = Callable[[Cell, Record, bool], None]


def say(console: Console, text: str, style: str | None = None) -> None:
    """As it is: paths may hold what looks like markup, and a line in a file is not folded."""
    console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)


class Watch:
    """The whole is measured in expected seconds, so that a long cell counts for more than a short one."""

    def __init__(self, console: Console, seconds: float | None = None) -> None:
        self.console = console
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )
        self.whole = None if seconds is None else self.bars.add_task("all studies", total=seconds, count="")

    def __enter__(self) -> "Watch":
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def say(self, text: str) -> None:
        say(self.bars.console, text)

    @contextmanager
    def stage(
        self, title: str, cells: int, line: Callable[[Cell, Record], str], seconds_a_cell: float = 0.0
    ) -> Iterator[Done]:
        """Gives what `run_missing` tells of each cell; cells that were finished before are only counted."""
        bar = self.bars.add_task(title, total=cells, count=f"0/{cells}")
        before_count = count = 0

        def done(cell: Cell, record: Record, before: bool) -> None:
            nonlocal before_count, count
            count += 1
            self.bars.update(bar, completed=count, count=f"{count}/{cells}")
            if before:
                before_count += 1
                return
            if count == before_count + 1:
                self._say_heading(title, before_count, cells)
            self.say(f"[{count}/{cells}] {line(cell, record)}")
            if self.whole is not None:
                self.bars.advance(self.whole, seconds_a_cell)

        yield done
        if count and count == before_count:
            self._say_heading(title, before_count, cells)
        self.bars.remove_task(bar)

    def _say_heading(self, title: str, before: int, cells: int) -> None:
        """Before the first line of a stage, or instead of one; a command of one stage has said what it does."""
        if before:
            self.say(f"{title}: {before} of {cells} finished already")
        elif self.whole is not None:
            self.say(title)
