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
        self,
        title: str,
        cells: int,
        line: Callable[[Cell, Record], str],
        seconds_a_cell: float = 0.0,
        there: int | None = None,
    ) -> Iterator[Done]:
        """Gives what `run_missing` tells of each cell; cells that were finished before are only counted.

        `there`, of one stage among others, is how many records are there before it begins, which its heading says. A
        command of one stage has said what it does, and hears of them from `run_missing`.
        """
        bar = self.bars.add_task(title, total=cells, count=f"0/{cells}")
        before_count = count = 0
        if there is not None:
            self.say(_finished_before(title, there, cells) if there else title)

        def done(cell: Cell, record: Record, before: bool) -> None:
            nonlocal before_count, count
            count += 1
            self.bars.update(bar, completed=count, count=f"{count}/{cells}")
            if before:
                before_count += 1
                return
            if there is None and before_count and count == before_count + 1:
                self.say(_finished_before(title, before_count, cells))
            self.say(f"[{count}/{cells}] {line(cell, record)}")
            if self.whole is not None:
                self.bars.advance(self.whole, seconds_a_cell)

        yield done
        if there is None and count and count == before_count:
            self.say(_finished_before(title, before_count, cells))
        self.bars.remove_task(bar)


def _finished_before(title: str, before: int, cells: int) -> str:
    return f"{title}: {before} of {cells} finished already"
