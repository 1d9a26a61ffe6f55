"""The `triune` command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Annotated

import typer

from triune.commands import (
    bench,
    data,
    epoch_time,
    finetuning,
    inspection,
    models,
    noise,
    report,
    studies,
    training,
    transfer,
)
from triune.errors import TriuneError, one_line
from triune.version import __version__

app = typer.Typer(
    name="triune",
    help="One weight matrix, three roles: transformers whose queries, keys and values come from one shared projection.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for area in (models, data, training, finetuning, inspection, noise, transfer, epoch_time, studies, report, bench):
    area.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"triune {__version__}")
        raise typer.Exit


@app.callback()
def root(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            help="Python file or module that registers operators of your own; may be given several times.",
            metavar="FILE|MODULE",
            envvar="TRIUNE_PLUGIN",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if plugin:
        from triune.operators import load_plugin

        for where in plugin:
            load_plugin(where)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error and exit status 2."""
    # Closed by the caller (`>&-`): nobody wants it, and files that are opened later must not take its place.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # formulas need more than ASCII, whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        _refuse_empty_folders(sys.argv[1:])
        with _ending_in_order():
            status = app(standalone_mode=False)
        print(end="", flush=True)  # at exit, Python would report a failure in its own way
    except TriuneError as error:
        _fail(one_line(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone (triune … | head): nothing to say, and no traceback at exit
        sys.exit(1)
    except MemoryError as error:
        _fail(f"the machine has not the memory for that: ask for less at once ({one_line(error)})")
    except OSError as error:
        if not _takes_no_more():
            raise
        _fail(f"cannot write to standard output: {error.strerror}")
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, here or from a worker process
            _fail(
                "the GPU has no memory left: free some, take fewer --workers where there are several, or less at once "
                f"by --set (training.per_device in pre-training, training.batch in fine-tuning). {one_line(error)}"
            )
        # A mistake on the command line itself; typer brings its own exception classes or click's.
        if not hasattr(error, "format_message"):
            raise
        if getattr(error, "option_name", None) == "--plugin":
            _fail("--plugin goes before the command, as in: triune --plugin FILE pretrain …")
        if message := " ".join(error.format_message().split()):  # empty where help has been printed already
            context = getattr(error, "ctx", None)
            _fail(f"{message} (see '{context.command_path if context else 'triune'} --help')")
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM, as schedulers and `timeout` send it, takes away what is half written, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _refuse_empty_folders(arguments: list[str]) -> None:
    """`--out "$UNSET"` or `records "$UNSET"`: a path of nothing would be the current folder."""
    for option in ("--out", "--data", "--data-dir"):
        if (option, "") in pairwise(arguments) or f"{option}=" in arguments:
            raise TriuneError(f"{option} is empty: name a folder (a variable of the shell that is not set?)")
    for before, argument in pairwise(["", *arguments]):
        if not argument and not before.startswith("-"):  # behind an option it is that option's value
            raise TriuneError("an argument is empty: name a file or folder (a variable of the shell that is not set?)")


def _fail(message: str) -> None:
    print(f"triune: error: {message}", file=sys.stderr)
    _takes_no_more()
    sys.exit(2)


def _takes_no_more() -> bool:
    """Whether standard output refuses what waits for it, as on a full disk.

    That is thrown away then: at exit, Python would try once more and end with a status of its own.
    """
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


if __name__ == "__main__":
    main()
