"""Small trained models that lie in the repository's folder `models/`; a wheel does not carry them."""

import os
from pathlib import Path

from triune.errors import TriuneError, did_you_mean, shown

VARIABLE = "TRIUNE_MODELS"
FOLDER = "models"
CHECKOUT = Path(__file__).parents[3]  # of an editable install; of a wheel it is some folder of Python's


def pretrained(name: str) -> str:
    """The path of a model that comes with the repository, as `from_pretrained` and `pipeline` take it."""
    if not isinstance(name, str):
        raise TriuneError(f"the name of a model is a text, not {shown(repr(name))}")
    known = _models()
    if name in known:
        return str(known[name])
    if known:
        raise TriuneError(f"there is no model '{name}'{did_you_mean(name, known)}")
    looked = _folders() or ([CHECKOUT / FOLDER] if _is_checkout() else [])
    places = " and ".join(f"'{folder}'" for folder in looked)
    why = f"there is none in {places}" if looked else "an installed package carries none"
    get = "update the checkout (git pull), make one (triune publish)" if _is_checkout() else "clone the repository"
    raise TriuneError(
        f"there is no model '{name}' here, because {why}: {get}, or set {VARIABLE} to a folder that holds models"
    )


def pretrained_names() -> list[str]:
    """What `pretrained` finds."""
    return sorted(_models())


def resolved(name: str) -> str:
    """A folder or a name on the hub as it is; the name of a model that comes with the repository as its path."""
    if "/" in name or Path(name).expanduser().is_dir():
        return name
    return str(_models().get(name, name))


def is_path(name: str) -> bool:
    """Whether a name can only be meant as a path: one on the hub is NAME or OWNER/NAME."""
    return name.count("/") > 1 or name.startswith((".", "/", "~"))


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
    if _is_checkout() and (CHECKOUT / FOLDER).is_dir():
        folders.append(CHECKOUT / FOLDER)
    return folders


def _is_checkout() -> bool:
    return (CHECKOUT / "pyproject.toml").is_file()
