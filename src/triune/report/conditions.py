"""What was equal between the models of a comparison and what was not, and what the paper had in its place."""

from collections.abc import Callable, Sequence
from typing import Any

from triune.benchmarks import paper
from triune.data.tasks import task_names
from triune.report.tables import Table

Record = dict[str, Any]
Condition = tuple[str, Callable[[Record], Any], str]  # its name, where it is in a record, the paper's

NOT_SAID = "not said"
ONE_MODEL = "one model"  # it is equal to nothing
_COLUMNS = ["condition", "ours", "equal for all", "the paper"]


def pretraining_conditions(runs: Sequence[Record], pocket: bool) -> Table:
    from triune.training.recipe import load_recipe

    theirs = load_recipe("paper-base")
    model, training = theirs.model, theirs.training
    tokens = paper.FIGURE_2["steps"] * training.sequences * theirs.data.block_length
    conditions: list[Condition] = [
        ("text", lambda run: _text(run, pocket), "books and English Wikipedia, 3.2 billion tokens"),
        ("text of the validation loss", _scored, NOT_SAID),
        ("tokens seen", lambda run: f"{run['tokens']:,}", f"{tokens:,.0f}"),
        ("steps", lambda run: f"{run['steps']:,}", f"{paper.FIGURE_2['steps']:,}"),
        ("sequences a step × tokens", _sequences, f"{training.sequences} × {theirs.data.block_length}"),
        ("layers × width, heads", _size, f"{model.layers} × {model.width}, {model.heads}"),
        ("position of the norm, of tokens", _form, f"{model.norm_position}, {model.position} (BERT's)"),
        ("parameters", lambda run: f"{run['parameters']:,}", "Table 4"),
        ("settings of the operator", _operator_settings, "start of the role vectors not said"),
        ("learning rate, schedule", _rate, NOT_SAID),
        ("dropout, hidden and attention", _dropout, f"{model.hidden_dropout:g}, {model.attention_dropout:g}"),
        ("masked share", lambda run: f"{run['recipe']['masking']['ratio']:g}", f"{theirs.masking.ratio:g}"),
        ("precision, device", lambda run: f"{run['recipe']['training']['precision']}, {run['device']}", "four GPUs"),
        ("seeds", lambda run: run["seed"], "one run, as far as is said"),
    ]
    if any("how" in run for run in runs):  # older ones did not write it down
        conditions.append(("computed by", lambda run: run.get("how", NOT_SAID), NOT_SAID))
    return _table(runs, conditions, lambda run: run["label"])


def finetuning_conditions(records: Sequence[Record], pocket: bool, recipe: str) -> Table:
    """`recipe` is the one that states what the paper did."""
    from triune.training.finetune_recipe import load_finetune_recipe

    theirs = load_finetune_recipe(recipe)
    rates = ", ".join(f"{rate:g}" for rate in theirs.optimizer.learning_rates)
    dropout = theirs.model.hidden_dropout
    conditions: list[Condition] = [
        ("data", lambda one: _task_data(one, pocket), "whole official splits"),
        ("seeds", lambda one: one["seed"], NOT_SAID),
        ("epochs", lambda one: one["epochs"], f"{theirs.training.epochs}"),
        ("learning rates", _rates, f"{rates}, one after the other"),
        ("batch", lambda one: one["recipe"]["training"]["batch"], f"{theirs.training.batch} (that of its Figure 3)"),
        ("weight decay", lambda one: one["recipe"]["optimizer"]["weight_decay"], f"{theirs.optimizer.weight_decay:g}"),
        (
            "dropout, hidden and attention",
            lambda one: ", ".join(_or_pretrained(one["recipe"]["model"][name]) for name in _DROPOUTS),
            f"{NOT_SAID if dropout is None else f'{dropout:g}'}, {theirs.model.attention_dropout:g}",
        ),
        ("longest input", lambda one: f"{one['max_length']} tokens", NOT_SAID),
        ("epoch that is scored", lambda one: "the best on the development set", NOT_SAID),
        ("precision, device", lambda one: f"{one['recipe']['training']['precision']}, {one['device']}", NOT_SAID),
    ]
    return _table(records, conditions, lambda one: one["model"])


def noise_conditions(records: Sequence[Record]) -> Table:
    conditions: list[Condition] = [
        ("tasks", lambda one: one["task_title"], "MNLI, QQP, SST-2"),
        ("where noise enters", lambda one: f"{one['settings']['where']} the embedding LayerNorm", NOT_SAID),
        ("draws a level", lambda one: one["settings"]["draws"], NOT_SAID),
        ("levels", lambda one: _percents(one["settings"]["levels"]), _percents(paper.TABLE_5_LEVELS)),
        ("rates of corruptions", lambda one: _percents(one["settings"]["rates"]), "Gaussian noise only"),
        ("development rows", lambda one: f"{one['task_title']} {one['dev_rows']:,}", "whole development sets"),
        ("fine-tuning seeds", lambda one: one["seed"], NOT_SAID),
    ]
    return _table(records, conditions, lambda one: one["model"])


def transfer_conditions(records: Sequence[Record]) -> Table:
    def targets(record: Record) -> list[str]:
        return [one["title"] for one in record["targets"]]

    def rows(record: Record) -> list[str]:
        return [f"{one['title']} {one['rows']:,}" for one in record["targets"]]

    conditions: list[Condition] = [
        ("trained on", lambda one: one["source_title"], "MNLI, QNLI, QQP, MRPC"),
        ("tested on", targets, "MNLI, QNLI, QQP, MRPC"),
        ("development rows", rows, "whole development sets"),
        ("three classes to two", lambda one: "stated under Methods", NOT_SAID),
        ("fine-tuning seeds", lambda one: one["seed"], NOT_SAID),
    ]
    return _table(records, conditions, lambda one: one["model"])


def time_conditions(records: Sequence[Record]) -> Table:
    def size(record: Record) -> str:
        model = record["model"]
        return f"{model['layers']} × {model['width']}, {model['heads']} heads"

    conditions: list[Condition] = [
        ("layers × width", size, "12 × 768, 12 heads"),
        ("batch", lambda one: one["batch"], "16"),
        ("rows of the epoch", lambda one: f"{one['task_title']} {one['rows']:,}", "whole training sets"),
        ("mean tokens a row", lambda one: f"{one['task_title']} {one['mean_tokens']:.1f}", NOT_SAID),
        ("measured", lambda one: f"median of {one['rounds']}, interleaved", "once, as far as is said"),
        ("precision", lambda one: one["precision"], NOT_SAID),
        ("computed by", lambda one: one["contestant"].get("how", NOT_SAID), NOT_SAID),
        ("device", lambda one: one["device"], "RTX A6000"),
    ]
    timed = [{**record, "contestant": one} for record in records for one in record["contestants"]]
    return _table(timed, conditions, lambda one: one["contestant"]["model"])


def _table(records: Sequence[Record], conditions: Sequence[Condition], label: Callable[[Record], str]) -> Table:
    """A condition is equal if every model had the same values, in all and on each task; a list is several values."""
    table = Table("What was equal and what was not", list(_COLUMNS), text_columns=4)
    for name, value, theirs in conditions:
        by_model: dict[str, dict[str, None]] = {}
        by_task: dict[str, dict[str, set[str]]] = {}
        for record in records:
            said = value(record)
            values = [str(one) for one in (said if isinstance(said, list) else [said])]
            by_model.setdefault(label(record), {}).update(dict.fromkeys(values))
            task = record.get("task") or record.get("source") or ""
            by_task.setdefault(task, {}).setdefault(label(record), set()).update(values)
        unequal = [
            task
            for task, models in by_task.items()
            if any(one != next(iter(models.values())) for one in models.values())
        ]
        if len({frozenset(values) for values in by_model.values()}) == 1:
            equal = ONE_MODEL if len(by_model) == 1 else "no" if unequal else "yes"
            ours = ", ".join(next(iter(by_model.values())))
            if unequal:
                ours += f" (not the same for all on {', '.join(unequal)})"
        else:
            ours, equal = "; ".join(f"{one}: {', '.join(values)}" for one, values in by_model.items()), "no"
        table.rows.append([name, ours, equal, theirs])
    return table


_DROPOUTS = ("hidden_dropout", "attention_dropout")


def _text(run: Record, pocket: bool) -> str:
    return ("made-up pocket world, " if pocket else "") + f"checksum {run['data'].get('train.tokens.bin', '?')[:10]}"


def _task_data(record: Record, pocket: bool) -> str:
    if pocket:
        return "made-up pocket tasks"
    if record["task"] not in task_names():
        return "own data"
    return "part of the official splits" if record["subset"] else "whole official splits"


def _scored(run: Record) -> str:
    training = run["recipe"]["training"]
    where = "spread over" if training.get("evaluate_from") == "whole" else "the first of"
    return f"{training['evaluate_blocks']:,} blocks at most, {where} the held-out text"


def _sequences(run: Record) -> str:
    return f"{run['recipe']['training']['sequences']} × {run['recipe']['data']['block_length']}"


def _size(run: Record) -> str:
    model = run["recipe"]["model"]
    return f"{model['layers']} × {model['width']}, {model['heads']}"


def _form(run: Record) -> str:
    model = run["recipe"]["model"]
    return f"{model['norm_position']}, {model['position']}"


def _operator_settings(run: Record) -> str:
    settings = run["recipe"]["model"]["operator_settings"]
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "defaults"


def _rate(run: Record) -> str:
    optimizer = run["recipe"]["optimizer"]
    return f"{optimizer['learning_rate']:g}, {optimizer['schedule']}"


def _dropout(run: Record) -> str:
    model = run["recipe"]["model"]
    return f"{model['hidden_dropout']:g}, {model['attention_dropout']:g}"


def _rates(record: Record) -> str:
    return ", ".join(f"{rate:g}" for rate in record["recipe"]["optimizer"]["learning_rates"])


def _or_pretrained(value: float | None) -> str:
    return "as pre-trained" if value is None else f"{value:g}"


def _percents(shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:g}" for share in shares) + " %"
