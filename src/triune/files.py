"""Writing files so that a reader sees the old one or the new one, never a half."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from triune.errors import TriuneError, one_line

_ATTEMPTS = 20


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    with _whole_file(path) as write:
        write(content)


def why_not_written(path: Path, error: OSError) -> str:
    """In the words of the system, but where a file stands in place of a folder: there those only say that it exists."""
    file = next((one for one in path.parents if os.path.isfile(one)), None)  # Path.is_file may raise what this explains
    return error.strerror or one_line(error) if file is None else f"'{file}' is a file, not a folder"


@contextmanager
def text_in_place(path: Path | None) -> Iterator[Callable[[str], object]]:
    """A function to write lines with: to standard output at once, or to a file that appears whole at the end."""
    if path is None:

        def to_output(line: str) -> None:
            try:
                print(line, end="", flush=True)
            except BrokenPipeError:  # nobody reads any more, which is no mistake
                raise
            except OSError as error:
                raise TriuneError(f"cannot write to standard output: {error.strerror}") from error

        yield to_output
        return
    with _whole_file(path) as write:
        yield lambda line: write(line.encode("utf-8"))


@contextmanager
def alone_at(path: Path, busy: str | None = None) -> Iterator[None]:
    """Only one process at a time is inside. The file at `path` is the lock; it ends with the process that holds it.

    Others wait, or, where `busy` is what to say of it, are refused.
    """
    lock = FileLock(path, timeout=-1 if busy is None else 0)
    new = [one for one in path.parents if not one.exists()]
    for attempt in range(_ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            break
        except Timeout:
            raise TriuneError(str(busy)) from None
        except OSError as error:
            # Whoever was inside and failed may take away the folder that was new, in this very moment.
            if attempt + 1 < _ATTEMPTS and isinstance(error, (FileNotFoundError, FileExistsError)):
                continue
            raise TriuneError(f"cannot write '{path.parent}': {why_not_written(path, error)}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()
        for one in new:  # what failed at once leaves nothing behind
            with suppress(OSError):  # it holds something, or another process was faster
                one.rmdir()


@contextmanager
def _whole_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """A function to write with, beside; then rename. On failure (a full disk, a missing right) what was there stays.

    What else goes wrong in the block (a source that cannot be read) is not about this file and passes as it is.
    A link stays one, and what is no file (a pipe, /dev/null, /dev/stdout) is written into: a rename would put a file in
    its place.
    """
    if _is_device_or_pipe(path):
        with _straight_into(path) as write_through:
            yield write_through
        return
    try:
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise TriuneError(f"cannot write '{path}': {why_not_written(path, error)}") from error
    file = os.fdopen(handle, "wb")

    def write(content: bytes) -> None:
        with _writing(path):
            file.write(content)

    try:
        yield write
        with _writing(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(beside, 0o666 & ~umask)  # mkstemp makes files that only their owner may read
            os.replace(beside, path)
    finally:
        with suppress(OSError):  # a full disk takes nothing of what waits to be written either
            file.close()
        Path(beside).unlink(missing_ok=True)  # it is gone already where all went well


def _is_device_or_pipe(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # it is not there, or may not be looked at, which is said when it is written
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _straight_into(path: Path) -> Iterator[Callable[[bytes], object]]:
    with _writing(path):
        stream = path.open("wb", buffering=0)

    def write(content: bytes) -> None:
        with _writing(path):
            while content:
                content = content[stream.write(content) :]

    with stream:
        yield write


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # who reads a pipe has gone, which is no mistake
        raise
    except OSError as error:
        raise TriuneError(f"cannot write '{path}': {error.strerror}; nothing was changed") from error
