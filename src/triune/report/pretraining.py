"""What a pre-training run gave, and the table that goes with Figure 2."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from triune.errors import TriuneError, one_line
from triune.presence import RUN
from triune.report.tables import Table
from triune.report.unigram import unigram_note, unigram_of
from triune.training.run_folder import metrics_of, summary_of

Record = dict[str, Any]

_SUMMARY = ("operator", "parameters", "steps", "tokens", "train_loss", "validation_loss", "unigram_entropy", "seconds")


def run_record(run: Path) -> Record:
    """A finished run folder as one record: its summary, its recipe and the curve; `label` is what tables call it."""
    folder = run.resolve()
    label = folder.parent.name if folder.name.startswith("seed-") else folder.name
    try:
        about = json.loads((run / RUN).read_text(encoding="utf-8"))
        recipe, summary = about["recipe"], summary_of(run)
        return {
            "study": "pretraining",
            "label": label,
            "seed": recipe["training"]["seed"],
            **{name: summary[name] for name in _SUMMARY},
            **{name: value for name, value in summary.items() if name != "run"},
            "recipe": recipe,
            "data": about["data"],
            "versions": about["versions"],
            "metrics": metrics_of(run),
        }
    except TriuneError:
        raise
    except OSError as error:
        raise TriuneError(f"'{run}' is not a run folder: cannot read {RUN} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TriuneError(f"'{run}' is damaged ({one_line(error)}): run it again in another folder") from error


def unlike(runs: Sequence[Record]) -> str:
    """Why the losses of these runs are not of models that had the same, or are not of the same text; else nothing."""

    def several(of_run: Callable[[Record], object]) -> bool:
        return len({json.dumps(of_run(run), sort_keys=True) for run in runs}) > 1

    settings = ("evaluate_blocks", "evaluate_from")
    scored = several(lambda run: [run["recipe"]["training"].get(name) for name in settings])
    if scored or several(lambda run: [run["data"].get(f"valid.{part}.bin") for part in ("tokens", "segments")]):
        return "of unlike texts"
    return "after unlike numbers of tokens" if several(lambda run: run["tokens"]) else ""


def runs_table(records: Sequence[Record]) -> Table:
    table = Table(
        "Pre-training (Figure 2)",
        ["model", "parameters", "tokens", "training loss", "validation loss", "below unigram", "seconds"],
        notes=[
            f"{unigram_note(records)} {_seeds(records)}",
            "Seconds are by the clock, whatever else ran on the machine: `triune bench step` measures speed.",
        ],
    )
    for record in records:
        settings = record["recipe"]["model"].get("operator_settings")
        if settings:
            said = ", ".join(f"{name} {value}" for name, value in settings.items())
            note = f"{record['label']}: {said}."
            if note not in table.notes:
                table.notes.append(note)
        figures = [
            f"{record['parameters']:,}",
            f"{record['tokens']:,}",
            f"{record['train_loss']:.3f}",
            f"{record['validation_loss']:.3f}",
            f"{unigram_of(record) - record['validation_loss']:.3f}",
            f"{record['seconds']:.0f}",
        ]
        if record.get("file"):
            table.sources |= {(len(table.rows), column): (record["file"],) for column in range(1, len(table.columns))}
        table.rows.append([_name(record, records), *figures])
    by_label = _by_label(records)
    common = set.intersection(*({run["seed"] for run in runs} for runs in by_label.values()))
    if len(common) > 1:  # a mean with a seed that another model lacks is not to be set beside its mean
        for label, runs in by_label.items():
            _add_mean(table, label, [run for run in runs if run["seed"] in common])
    if len(common) < (most := max(len(runs) for runs in by_label.values())) and most > 1:
        said = ", ".join(map(str, sorted(common))) or "none"
        table.notes.append(f"Means are only of seeds that all models have, two at least; here all have: {said}.")
    return table


def _add_mean(table: Table, label: str, runs: list[Record]) -> None:
    """A row with mean ± standard deviation over the seeds of one model."""
    below = [unigram_of(run) - run["validation_loss"] for run in runs]
    losses = [[run[name] for run in runs] for name in ("train_loss", "validation_loss")]
    row = [f"{label}, mean of {len(runs)} seeds", f"{runs[0]['parameters']:,}", f"{runs[0]['tokens']:,}"]
    row += [f"{mean(values):.3f} ± {stdev(values):.3f}" for values in (*losses, below)]
    row.append(f"{mean(run['seconds'] for run in runs):.0f}")
    if all(run.get("file") for run in runs):
        files = tuple(run["file"] for run in runs)
        table.sources |= {(len(table.rows), column): files for column in range(1, len(table.columns))}
    table.rows.append(row)


def _by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    by_label: dict[str, list[Record]] = {}
    for record in records:
        by_label.setdefault(record["label"], []).append(record)
    return by_label


def by_loss(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Runs by their label, that of the lowest mean loss first."""
    by_label = _by_label(records)
    return dict(sorted(by_label.items(), key=lambda item: mean(run["validation_loss"] for run in item[1])))


def variant_table(records: Sequence[Record]) -> Table:
    """Variants of a recipe whose runs are there without the record of the whole study, the lowest loss first."""
    table = Table(
        "Variants of one recipe",
        ["variant", "seeds", "parameters", "validation loss"],
        notes=["Mean ± standard deviation over seeds. `triune ablate` was not finished: nothing was tested."],
    )
    for label, runs in by_loss(records).items():
        losses = [run["validation_loss"] for run in runs]
        spread = f" ± {stdev(losses):.3f}" if len(losses) > 1 else ""
        if runs[0].get("file"):
            table.sources[len(table.rows), 3] = tuple(run["file"] for run in runs)
        table.rows.append([label, str(len(runs)), f"{runs[0]['parameters']:,}", f"{mean(losses):.3f}{spread}"])
    return table


def _name(record: Record, records: Sequence[Record]) -> str:
    alone = sum(one["label"] == record["label"] for one in records) == 1
    return record["label"] if alone else f"{record['label']}, seed {record['seed']}"


def _seeds(records: Sequence[Record]) -> str:
    seeds = ", ".join(str(seed) for seed in sorted({one["seed"] for one in records}))
    labels = {one["label"] for one in records}
    if len(labels) == len(records):
        return f"Seed {seeds}: one run each shows no significance."
    return f"Seeds {seeds}."
