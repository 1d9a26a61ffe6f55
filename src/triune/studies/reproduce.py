"""All studies of the paper at one scale: plan, run what is missing, write the page, say the answer."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from triune.budget import what_is_left
from triune.cells import Cell, Record, write_record
from triune.errors import TriuneError, did_you_mean
from triune.evaluation import significance
from triune.files import write_text
from triune.presence import diverged, read
from triune.progress import Watch
from triune.report import page, planned
from triune.studies import pretraining, stages
from triune.studies.place import Place, check, check_tasks, make_data
from triune.studies.planning import in_order, show_plan, title_of, why_to_wait
from triune.studies.stages import Stage

PAGE = "report.html"
ANSWER = "answer.json"


def _line(module: str, name: str) -> Callable[[Cell, Record], str]:
    """A study's own line about a cell, imported when there is one to say."""
    return lambda cell, record: str(getattr(import_module(module), name)(cell, record))


_loss_line = _line("triune.training.pretraining_cell", "loss_line")

STAGES = {
    stage.name: stage
    for stage in (
        Stage(
            "parameters",
            "parameters (Tables 3, 4)",
            stages.parameter_records,
            stages.run_parameters,
            lambda place: 3.0,
        ),
        Stage(
            "rates",
            "rates of pre-training",
            pretraining.rate_records,
            pretraining.run_rates,
            lambda place: float(place.scale.pretraining.search.get("seconds", 0.0)),
            needs=("data",),
            line=_loss_line,
        ),
        Stage(
            "pretraining",
            "pre-training (Figure 2)",
            pretraining.pretraining_records,
            pretraining.run_pretraining,
            lambda place: place.scale.pretraining.seconds,
            needs=("data", "rates"),
            line=_loss_line,
        ),
        Stage(
            "finetuning",
            "fine-tuning (Tables 1, 2)",
            stages.finetuning_records,
            stages.run_finetuning,
            lambda place: place.scale.finetuning.seconds,
            needs=("pretraining",),
            line=_line("triune.training.matrix", "finetuning_line"),
        ),
        Stage(
            "noise",
            "noise (Table 5)",
            stages.noise_records,
            stages.run_noise,
            lambda place: place.scale.noise.seconds,
            needs=("finetuning",),
            line=_line("triune.evaluation.noise", "noise_line"),
        ),
        Stage(
            "transfer",
            "cross-task (Table 6)",
            stages.transfer_records,
            stages.run_transfer,
            lambda place: place.scale.transfer.seconds,
            needs=("finetuning",),
            line=_line("triune.evaluation.transfer", "transfer_line"),
        ),
        Stage(
            "ablation-rates",
            "rates of the ablations",
            pretraining.variant_rate_records,
            pretraining.run_variant_rates,
            lambda place: float(place.scale.pretraining.search.get("seconds", 0.0)),
            needs=("data",),
            line=_loss_line,
        ),
        Stage(
            "ablations",
            "ablations and controls",
            pretraining.ablation_records,
            pretraining.run_ablations,
            lambda place: place.scale.ablations.seconds,
            # Rates of all: a variant may be the same model as an operator of the paper.
            needs=("data", "rates", "ablation-rates"),
            line=_loss_line,
        ),
        Stage(
            "inspect",
            "looking inside",
            stages.inspect_records,
            stages.run_inspect,
            lambda place: place.scale.inspect.seconds,
            needs=("pretraining",),
        ),
        Stage(
            "time",
            "training time (Figure 3)",
            stages.time_records,
            stages.run_time,
            lambda place: place.scale.time.seconds,
            needs=("pretraining",),
            alone=True,
            line=_line("triune.benchmarks.epoch_time", "time_line"),
        ),
    )
}


def reproduce(place: Place, only: Sequence[str] = (), console: Console | None = None, report: bool = True) -> list[str]:
    """Run what is missing, write the page, and give the short answer in lines; without `report` only the records."""
    console = console or Console(stderr=True, highlight=False)
    seconds = plan(place, only, console)
    whole, (place, chosen) = place, _chosen(place, only)
    check_tasks(place, [stage.name for stage in chosen])
    _write_planned(whole)
    budget = place.engine.budget
    with Watch(console, seconds) as watch:
        if any("data" in stage.needs for stage in chosen):
            make_data(place, watch.say)
        if budget is not None:
            budget.count_from_now()
        for stage, part in in_order(place, chosen):
            if budget is None or (wait := why_to_wait(stage, part, chosen, budget)) is None:
                _run(stage, part, watch)
            else:
                watch.say(wait)
    records = [path for stage in chosen for path in stage.records(place)]
    left = diverged_lines(place.out, records)
    left += [] if budget is None else what_is_left(budget, records)
    if not report or (left and not any(path.is_file() and not diverged(path) for path in records)):
        return left  # not asked for, or not even one record: there is nothing to report on
    return [*_report(place.out), *left]


def _write_planned(place: Place) -> None:
    """For the report: what there is to be in the end. It is that of the scale, also where --only names a part."""
    scale = place.scale
    record: Record = {"study": planned.STUDY, "operators": place.labels, "tasks": scale.finetuning.tasks}
    record |= {"pretraining_seeds": scale.pretraining.seeds, "finetuning_seeds": scale.finetuning.seeds}
    if scale.pretraining.rates:
        record[planned.RATES] = list(scale.pretraining.rates)
    if read(place.out / planned.FILE) != record:
        write_record(place.out / planned.FILE, record)


def diverged_lines(out: Path, records: Sequence[Path]) -> list[str]:
    """Every run that diverged, and every search of which all rates did; a rate that lost its search is none."""
    lines: list[str] = []
    searches: dict[Path, list[bool]] = {}
    for path in dict.fromkeys(records):
        said = diverged(path)
        folder = path.parent.relative_to(out)
        if folder.parts[:1] == ("rates",) or folder.name.startswith("search-"):
            searches.setdefault(folder.parent, []).append(said is not None)
        elif said:
            lines.append(f"{folder} diverged: {said}. It is in no table, and what starts from it was left out.")
    for folder, lost in searches.items():
        if all(lost):
            lines.append(f"{folder}: every rate of the search diverged, so it was left out; lower its learning_rates.")
    return ["", *lines] if lines else []


def _run(stage: Stage, place: Place, watch: Watch) -> None:
    records = stage.records(place)
    if not records:
        return
    title = title_of(stage, place)
    workers = 1 if stage.alone else place.engine.at_once
    if place.engine.budget is not None:
        place.engine.budget.enter(stage.name, stage.seconds(place))
    there = sum(path.is_file() for path in records)
    with watch.stage(title, len(records), stage.line, stage.seconds(place) / workers, there) as done:
        stage.run(place, done)


def plan(place: Place, only: Sequence[str], console: Console) -> float:
    """Show what there is to do and about how long it takes; gives the seconds."""
    check(place)
    return show_plan(*_chosen(place, only), console)


def _chosen(place: Place, only: Sequence[str]) -> tuple[Place, list[Stage]]:
    """The stages asked for with those that they need; for those, only the tasks that are needed."""
    for name in only:
        if name not in STAGES:
            raise TriuneError(f"unknown study '{name}'{did_you_mean(name, STAGES)}")
        if place.operators and not STAGES[name].records(place) and STAGES[name].records(replace(place, operators=())):
            raise TriuneError(f"--only {name}: nothing of it is made of {', '.join(place.operators)} alone")
    if not only:
        return place, [stage for stage in STAGES.values() if stage.records(place)]
    wanted = set(only)
    for name in reversed(STAGES):
        if name in wanted:
            wanted |= {need for need in STAGES[name].needs if need in STAGES}
    if "finetuning" not in only:
        studied = [task for name in ("noise", "transfer") if name in only for task in getattr(place.scale, name).tasks]
        part = place.scale.finetuning
        tasks = [task for task in part.tasks if task in studied]
        place = replace(place, scale=replace(place.scale, finetuning=replace(part, tasks=tasks)))
    return place, [stage for stage in STAGES.values() if stage.name in wanted and stage.records(place)]


def _report(out: Path) -> list[str]:
    """The page, its Markdown, cards, lists of records, and the answer; from the same records nothing is made anew."""
    from triune.evaluation.comparing import read_records, write_scores
    from triune.report.answer import short_answer
    from triune.report.gather import gather

    found = gather([out])
    what = [_code_of_the_report(), found.all(), found.diverged]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    kept, made = _kept_answer(out), [*page.KINDS.values(), "records.json", "records.csv"]
    if kept is not None and kept["records_sha256"] == digest and all((out / name).exists() for name in made):
        return list(kept["lines"])
    for kind, name in page.KINDS.items():
        page.write_report([out], out / name, kind, found)
    if found["finetuning"]:
        compared = [] if found.waits_for else found.comparisons
        write_scores(out / "tasks", read_records(out / "tasks"), compared)
    lines = short_answer([out], found)
    write_text(out / ANSWER, json.dumps({"records_sha256": digest, "lines": lines}, indent=1, ensure_ascii=False))
    return lines


def _code_of_the_report() -> str:
    """Another version of the page, or of the tests on it, is made anew, from the same records."""
    folders = (Path(page.__file__).parent, Path(significance.__file__).parent)
    kinds = (".py", ".j2", ".css", ".js")
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in kinds)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _kept_answer(out: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((out / ANSWER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None  # not there, or not ours: it is made anew
