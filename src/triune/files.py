"""Writing files so that a reader sees the old one or the new one, never a half."""

import os
import tempfile
from pathlib import Path

from triune.errors import TriuneError


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside, then rename; on failure (a full disk, a missing right) what was there stays."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise TriuneError(f"cannot write '{path}': {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, 0o666 & ~umask)  # mkstemp makes files that only their owner may read
        os.replace(beside, path)
    except OSError as error:
        Path(beside).unlink(missing_ok=True)
        raise TriuneError(f"cannot write '{path}': {error.strerror}; nothing was changed") from error
