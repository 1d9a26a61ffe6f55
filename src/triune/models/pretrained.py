"""Small trained models that lie in the repository's folder `models/`; a wheel does not carry them."""

import os
from pathlib import Path

from triune.errors import TriuneError, did_you_mean

VARIABLE = "TRIUNE_MODELS"
FOLDER = "models"
CHECKOUT = Path(__file__).parents[3]  # of an editable install; of a wheel it is some folder of Python's


def pretrained(name: str) -> str:
    """The path of a model that comes with the repository, as `from_pretrained` and `pipeline` take it."""
    known = _models()
    if name in known:
        return str(known[name])
    if not _folders():
        raise TriuneError(
            f"there is no model '{name}' here, because an installed package carries none: clone the repository, or set "
            f"{VARIABLE} to a folder that holds models"
        )
    raise TriuneError(f"there is no model '{name}'{did_you_mean(name, known)}")


def pretrained_names() -> list[str]:
    """What `pretrained` finds."""
    return sorted(_models())


def resolved(name: str) -> str:
    """A folder or a name on the hub as it is; the name of a model that comes with the repository as its path."""
    if "/" in name or Path(name).expanduser().is_dir():
        return name
    return str(_models().get(name, name))


def _models() -> dict[str, Path]:
    """By name; one that two folders have is the first folder's."""
    found: dict[str, Path] = {}
    for folder in reversed(_folders()):
        found |= {file.parent.name: file.parent for file in sorted(folder.glob("[!.]*/config.json"))}
    return found


def _folders() -> list[Path]:
    folders = []
    if named := os.environ.get(VARIABLE):
        folders.append(Path(named).expanduser().absolute())
        if not folders[0].is_dir():
            raise TriuneError(f"{VARIABLE} names '{named}', which is not a folder: set it to one that holds models")
    of_checkout = CHECKOUT / FOLDER
    if of_checkout.is_dir() and (CHECKOUT / "pyproject.toml").is_file():
        folders.append(of_checkout)
    return folders
