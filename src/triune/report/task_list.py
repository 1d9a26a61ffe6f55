"""The tasks that come with the project, as a table."""

from triune.data.tasks import get_task, task_names
from triune.report.tables import Table


def task_table() -> Table:
    table = Table(
        "Tasks",
        ["name", "title", "kind", "columns", "classes", "metrics", "folder", "hub"],
        notes=[
            "The first metric listed chooses the best epoch and stands in the tables. "
            "`triune finetune --data-dir DIR` reads DIR/FOLDER/SPLIT.parquet "
            "(or .csv, .tsv, .jsonl; SQuAD: .json); without it the hub is read."
        ],
        text_columns=8,
    )
    for task in map(get_task, task_names()):
        metrics = [task.primary, *(metric for metric in task.metrics if metric != task.primary)]
        hub = "" if task.hub is None else task.hub.name
        cells = [", ".join(task.text), ", ".join(task.classes), ", ".join(metrics), task.folder, hub]
        table.rows.append([task.name, task.title, task.kind, *cells])
    return table
