"""The splits of a task, from a data folder or from the hub.

A data folder is laid out as `{folder}/{split}.parquet` (or .csv, .tsv, .jsonl), e.g. glue/cola/train.parquet. Where the
whole split is not there, all of `{split}_*` are joined, e.g. train_subset and train_derived; rows that were derived
come last, so that a limit takes official rows first.
"""

from pathlib import Path

from triune.data.examples import IDS, Examples, found, split_examples
from triune.data.own import own_task
from triune.data.sources import COMPRESSIONS
from triune.data.tables import Rows, check_text, read_rows
from triune.data.task_list import METRICS, Hub, Task, get_task, task_names
from triune.errors import TriuneError, did_you_mean, one_line, shown

__all__ = [
    "METRICS",
    "Examples",
    "Hub",
    "Task",
    "found",
    "get_task",
    "has_split",
    "load_split",
    "own_task",
    "split_path",
    "task_names",
]

POCKET = "pocket.json"  # at the top of a generated benchmark, which has no official number of rows

_PACKED = ("", *COMPRESSIONS)
_TABLES = (".parquet", *(kind + packed for kind in (".csv", ".tsv", ".jsonl") for packed in _PACKED))
_SPANS = (*(kind + packed for kind in (".json", ".jsonl") for packed in _PACKED), ".parquet")


def load_split(task: Task, split: str, data_dir: Path | None, limit: int | None = None) -> Examples:
    """A split of a classification or regression task; `limit` takes the first rows."""
    if task.kind == "span":
        raise TriuneError(f"{task.title} asks for answers in a text; its files are in SQuAD's format, not in tables")
    _check_split(task, split)
    if limit is not None and limit < 1:
        raise TriuneError(f"the limit of rows is {limit}; it must be at least 1")
    test = split.startswith("test")
    official = task.counts.get(split)
    if data_dir is None:
        parts, source, named = [_hub_rows(task, split, test)], _address(task, split), False
    else:
        paths = split_path(task, split, data_dir)
        columns, optional = [*task.text], [IDS]
        (optional if test else columns).append(task.label)
        parts = [read_rows(path, columns, text=task.text, optional=optional) for path in paths]
        source = " + ".join(path.relative_to(data_dir).as_posix() for path in paths)
        named = any("_subset" in path.name or "_derived" in path.name for path in paths)
        if (Path(data_dir) / POCKET).is_file():
            official = None
    rows = sum(map(len, parts))
    cut = limit is not None and limit < rows
    subset = cut or (official is not None and (named or rows != official))
    return split_examples(task, parts, source, subset, limit, test)


def has_split(task: Task, split: str, data_dir: Path) -> bool:
    """Whether there is any file of the split, good or not."""
    return bool(_split_files(task, split, data_dir))


def split_path(task: Task, split: str, data_dir: Path) -> list[Path]:
    """The files of a split: one, or the parts that are to be joined."""
    by_stem = _split_files(task, split, data_dir)
    folder, endings = Path(data_dir) / task.folder, _endings(task)
    chosen = {split: by_stem[split]} if split in by_stem else by_stem
    for same in chosen.values():
        if len(same) > 1:
            names = " and ".join(shown(path.name) for path in same)
            raise TriuneError(f"'{shown(folder, None)}' holds {names}; keep one of them")
    if not chosen:
        get = f"get it from {task.hub.name} on huggingface.co" if task.hub else "put it there"
        get += ", or leave --data-dir out to read it from the hub" if task.hub and task.kind != "span" else ""
        plain = [ending for ending in endings if not ending.endswith(COMPRESSIONS)]
        looked = f"{split}{plain[0]} (or {', '.join(plain[1:])}, or compressed) and {split}_*"
        raise TriuneError(f"no split '{split}' of {task.title}: looked for {looked} in '{shown(folder, None)}'; {get}")
    return [chosen[stem][0] for stem in sorted(chosen, key=lambda stem: ("_derived" in stem, stem))]


def _endings(task: Task) -> tuple[str, ...]:
    return _SPANS if task.kind == "span" else _TABLES


def _split_files(task: Task, split: str, data_dir: Path) -> dict[str, list[Path]]:
    """By their names without suffix."""
    _check_split(task, split)
    folder = Path(data_dir) / task.folder
    endings = _endings(task)
    by_stem: dict[str, list[Path]] = {}
    try:
        there = Path(data_dir).is_dir()
        paths = [path for path in sorted(folder.iterdir()) if path.is_file()] if folder.is_dir() else []
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        what = shown(getattr(error, "strerror", None) or error, None)
        raise TriuneError(f"cannot look into '{shown(folder, None)}': {what}") from error
    if not there:
        raise TriuneError(f"the data folder '{shown(data_dir, None)}' does not exist")
    for path in paths:
        ending = max((one for one in endings if path.name.lower().endswith(one)), key=len, default="")
        stem = path.name[: -len(ending)] if ending else ""
        if _belongs(task, stem) == split:
            by_stem.setdefault(stem, []).append(path)
    return by_stem


def _check_split(task: Task, split: str) -> None:
    if split not in task.splits:
        raise TriuneError(f"{task.title} has no split '{shown(split)}'{did_you_mean(split, task.splits)}")


def _belongs(task: Task, stem: str) -> str | None:
    """The split that a file is of: dev_mismatched_subset is of dev_mismatched, not of dev."""
    known = {*task.splits, "dev_mismatched", "test_mismatched"}
    return max((one for one in known if stem == one or stem.startswith(f"{one}_")), key=len, default=None)


def _address(task: Task, split: str) -> str:
    if task.hub is None:
        raise TriuneError(f"{shown(task.title)} is not on the hub; give a data folder")
    return task.hub.address(split)


def _hub_rows(task: Task, split: str, test: bool) -> Rows:
    address = _address(task, split)
    try:
        import datasets
    except ImportError as error:
        raise TriuneError(f"reading '{address}' needs the package datasets: pip install datasets") from error
    assert task.hub is not None
    try:
        table = datasets.load_dataset(task.hub.name, task.hub.config, split=task.hub.splits[split])
        names = list(table.column_names)
        wanted = [*task.text, task.label, IDS]
        columns = {name: list(table[name]) if name in names else [None] * len(table) for name in wanted}
    except Exception as error:  # whatever the hub, its client or the data set's files say
        what = shown(one_line(error), 300)
        raise TriuneError(f"cannot read '{address}': {what}; give a data folder (--data-dir) to read files") from error
    for name in [*task.text] if test else [*task.text, task.label]:
        if name not in names:
            raise TriuneError(f"'{address}': no column '{name}'{did_you_mean(name, names)}")
    rows = Rows(address, ".parquet", columns, list(range(1, len(table) + 1)))
    if not len(rows):
        raise TriuneError(f"'{address}' has no rows")
    for name in task.text:
        for index, value in enumerate(columns[name]):
            if not isinstance(value, str):
                check_text(value, name, rows.place(index))
    return rows
