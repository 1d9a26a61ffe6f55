"""What tables and cards call the task of some records: not by the bare name of a public task, if it is not that one."""

from collections.abc import Sequence
from typing import Any

from triune.data.tasks import get_task, task_names

Record = dict[str, Any]

POCKET_NOTE = (
    "pocket: a task of a small made-up world (`triune pocket`), which has only the name of the public one; not to be "
    "set beside published figures."
)


def task_name(records: Sequence[Record]) -> str:
    """Of records of one task."""
    return records[0]["task_title"] + marks(records)


def marks(records: Sequence[Record]) -> str:
    """What follows the title of a task, if any of its records needs it."""
    found = {"pocket": any(map(is_pocket, records)), "subset": any(one["subset"] for one in records)}
    said = ", ".join(mark for mark, holds in found.items() if holds)
    return f" ({said})" if said else ""


def is_pocket(record: Record) -> bool:
    """Records of earlier versions do not say it: there, what is called whole and has another number of rows is."""
    if "pocket" in record:
        return bool(record["pocket"])
    if record["task"] not in task_names() or record["subset"]:
        return False
    return record["dev_rows"] != get_task(record["task"]).counts.get("dev")
