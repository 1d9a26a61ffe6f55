"""Options of verbs that take tasks by name or a user's own files: those of the one are refused with the other."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from triune.errors import TriuneError


def is_own_data(
    own: Mapping[str, object], files: Sequence[str], needed: Sequence[str], of_tasks: Mapping[str, bool]
) -> bool:
    """Whether a user's own files are meant; an option that would be ignored is a mistake, as is one that is missing.

    `own` are the values of all options about own data by name, `files` those of them without which there is none,
    `needed` those that it needs; `of_tasks` says which options for tasks by name were given.
    """
    given = [option for option, value in own.items() if value is not None]
    if not any(option in given for option in files):
        if given:
            verb = "describes" if len(given) == 1 else "describe"
            raise TriuneError(f"{_listed(given)} {verb} your own data: give it as {_listed(files)}")
        return False
    if unfitting := [option for option, is_given in of_tasks.items() if is_given]:
        verb = "is" if len(unfitting) == 1 else "are"
        raise TriuneError(
            f"{_listed(unfitting)} {verb} for the tasks of `triune tasks`: give that or your own {_listed(files)}, "
            "not both"
        )
    if not set(needed) <= set(given):
        raise TriuneError(f"your own data needs all of {_listed(needed)}")
    return True


def tasks_folder(data_dir: Path | None) -> str | None:
    """Where --data-dir has the tasks, as `TaskData` takes it."""
    if data_dir is not None and not data_dir.is_dir():
        raise TriuneError(f"--data-dir '{data_dir}' is not a folder")
    return None if data_dir is None else str(data_dir)


def _listed(options: Sequence[str]) -> str:
    *before, last = options
    return f"{', '.join(before)} and {last}" if before else last
