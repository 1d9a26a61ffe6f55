"""Folders that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from triune.errors import TriuneError, one_line
from triune.files import why_not_written


def may_replace(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder holds nothing but what we write: anything else in it is somebody's, and stays."""
    return folder.is_dir() and all(path.name in names for path in folder.iterdir())


def refuse_something_else(folder: Path, names: Collection[str]) -> None:
    """What we are to write to must be new, empty, or hold what we wrote there before, which is replaced."""
    if folder.exists() and not may_replace(folder, names):
        raise TriuneError(f"'{folder}' holds something else; give an empty or new folder to write to")


def refuse_others_files(folder: Path, names: Collection[str], ours: str) -> None:
    """Files that we write last, in a folder without the records (a pattern) that we write first, are somebody's."""
    found = [name for name in names if (folder / name).exists()]
    if found and not any(folder.glob(ours)):
        raise TriuneError(f"'{folder}' holds a '{found[0]}' that is not ours; give an empty or new folder to write to")


@contextmanager
def replaced_folder(out: Path) -> Iterator[Path]:
    """A new folder beside `out` that takes its place if the block ends well; otherwise `out` stays as it was."""
    beside: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.partial."))
        with _other_files_named(beside, out):
            yield beside
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, 0o777 & ~umask)  # mkdtemp makes folders that only their owner may read
        _take_place(beside, out)
    except OSError as error:
        raise TriuneError(f"cannot write '{out}': {why_not_written(out, error)}; nothing was changed") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _other_files_named(beside: Path, out: Path) -> Iterator[None]:
    """Who fills a folder reads too: where an error names a file elsewhere, it is that one and not `out`."""
    try:
        yield
    except OSError as error:
        file = error.filename
        if not isinstance(file, str | Path) or Path(file).resolve().is_relative_to(beside.resolve()):
            raise
        raise TriuneError(f"'{file}': {error.strerror or one_line(error)}; '{out}' was not changed") from error


def _take_place(new: Path, out: Path) -> None:
    if not out.exists():
        os.rename(new, out)
        return
    old = new.with_name(new.name + ".old")
    os.rename(out, old)
    try:
        os.rename(new, out)
    except OSError:
        os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)
