"""In what order the cells of a reproduction come, how long they are expected to take, and what fits into a budget.

By rounds: the models of one pre-training seed, and all that needs their weights. With a budget of time, which may end
anywhere, by fine-tuning seeds within a round, so that noise and cross-task get their share, and by lists of variants;
and a round is begun where there is time for it, because its weights may not outlast the run.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from triune.budget import Budget, duration, seconds_in
from triune.presence import MODEL, RECORD, SUMMARY, has_lost_weights, has_weights, read
from triune.report.tables import Table
from triune.studies.place import FIRST_SEED, Place
from triune.studies.stages import Stage

_OF_A_TURN = ("finetuning", "noise", "transfer")
_OF_A_ROUND = ("pretraining", *_OF_A_TURN)
_WITHOUT_WEIGHTS = ("ablation-rates", "ablations")


def in_order(place: Place, chosen: Sequence[Stage]) -> Iterator[tuple[Stage, Place]]:
    """Each stage with the part of the place that it is to do: first what needs weights that are there then."""
    wait = len(place.rounds) > 1 or place.engine.budget is not None
    ordered = sorted(chosen, key=lambda stage: wait and stage.name in _WITHOUT_WEIGHTS)
    of_a_turn = [stage for stage in ordered if stage.name in _OF_A_TURN]
    of_a_list = [stage for stage in ordered if stage.name in _WITHOUT_WEIGHTS]
    # Rounds are for what needs weights. Variants by themselves need none: workers go from one seed to the next, and do
    # not wait for each other between them.
    parts = place.rounds if any(stage.name in _OF_A_ROUND for stage in chosen) else [place]
    for part in parts:
        for stage in ordered:
            if stage in of_a_turn:
                turns = part.turns if stage is of_a_turn[0] else []
                yield from ((one, turn) for turn in turns for one in of_a_turn)
            elif stage in of_a_list:
                lists = part.by_list if stage is of_a_list[0] else []
                yield from ((one, listed) for listed in lists for one in of_a_list)
            else:
                yield stage, part


def title_of(stage: Stage, place: Place) -> str:
    rounds, name = len(place.rounds), stage.title.partition(" (")[0]  # what of the paper it is goes where it gets long
    title = stage.title if rounds == 1 or place.round is None else f"{name}, round {place.round + 1} of {rounds}"
    if place.variants is not None and len(place.scale.ablations.lists) > 1:
        return f"{title}, {Path(place.variants).stem}"
    return title if place.turn is None else f"{title}, seed {place.turn}"


def why_to_wait(stage: Stage, place: Place, chosen: Sequence[Stage], budget: Budget) -> str | None:
    """Said where the models of a round had better be left to a later run; None where the stage goes on.

    A model that is made at the end of a run, and whose weights are gone in the next, can never be fine-tuned.
    """
    if stage.name != "pretraining" or len(place.rounds) == 1:
        return None
    expected = Expected(place)
    missing = [path for path in stage.records(place) if not path.is_file()]
    seconds = _seconds_of_round(place, chosen, expected)
    if not missing or budget.may_begin(seconds):
        return None
    budget.leave_out(min(expected.of(stage, path) for path in missing))
    return (
        f"{title_of(stage, place)}: left to another run. The round takes about {duration(seconds)}, and "
        f"{duration(max(0.0, budget.left))} are left; its weights may not outlast this run."
    )


def _seconds_of_round(place: Place, chosen: Sequence[Stage], expected: "Expected") -> float:
    stages = [stage for stage in chosen if stage.name in _OF_A_ROUND]
    missing = {stage.name: [path for path in stage.records(place) if not path.is_file()] for stage in stages}
    return sum(_together([expected.of(stage, path) for path in missing[stage.name]], stage, place) for stage in stages)


@dataclass
class Expected:
    """What cells take: the longest of their kind in the records that are there, or what the scale says."""

    place: Place
    _measured: dict[str, dict[str, float]] = field(default_factory=dict)  # by stage and kind

    def of(self, stage: Stage, record: Path) -> float:
        return self._of_stage(stage).get(self._kind(stage, record), stage.seconds(self.place))

    def said(self, stage: Stage, records: Sequence[Path]) -> str:
        """In words."""
        if not records:
            return "–"
        known = self._of_stage(stage)
        measured = [self._kind(stage, record) in known for record in records]
        seconds = [self.of(stage, record) for record in records]
        if not max(seconds):
            return "unknown"
        least, most = duration(min(seconds)), duration(max(seconds))
        how = "measured" if all(measured) else "by the scale" if not any(measured) else "partly measured"
        return f"{least if least == most else f'{least} to {most}'}, {how}"

    def _of_stage(self, stage: Stage) -> dict[str, float]:
        if stage.name not in self._measured:
            known = self._measured[stage.name] = {}
            for path in _all_records(stage, self.place):
                if (seconds := seconds_in(read(path))) is not None:
                    kind = self._kind(stage, path)
                    known[kind] = max(seconds, known.get(kind, 0.0))
        return self._measured[stage.name]

    def _kind(self, stage: Stage, record: Path) -> str:
        """As the cell has it: tasks differ in size."""
        if stage.name in ("finetuning", "noise", "time"):
            return record.relative_to(self.place.out).with_suffix("").parts[1]
        return ""


def _all_records(stage: Stage, place: Place) -> list[Path]:
    return stage.records(replace(place, round=None, turn=None, variants=None, operators=()))


def show_plan(place: Place, chosen: Sequence[Stage], console: Console) -> float:
    """Print it; gives the seconds of all that is missing."""
    table = Table("Plan", ["study", "runs", "finished", "one takes", "about"], notes=[])
    whole, counted, expected = 0.0, set[Path](), Expected(place)
    for stage in chosen:
        records = [path for path in stage.records(place) if path not in counted]  # a run may serve two studies
        counted.update(records)
        missing = [path for path in records if not path.is_file()]
        seconds = _together([expected.of(stage, path) for path in missing], stage, place)
        whole += seconds
        about = [expected.said(stage, missing), duration(seconds)] if missing else ["–", "–"]
        table.rows.append([stage.title, str(len(records)), str(len(records) - len(missing)), *about])
    if whole and not place.blocks.is_dir():
        whole += place.scale.data.seconds
    table.notes.append(
        f"About {duration(whole)} in all with {place.engine.at_once} at once. What one takes is the longest in the "
        "records that are here, and otherwise what the scale says of the machine that it is meant for. What is "
        "finished is kept; stopped and started again, it goes on."
        if whole
        else "Everything is finished: nothing is run again."
    )
    table.print_to(console)
    if place.engine.budget is not None and whole:
        _budget_table(place, chosen, place.engine.budget, expected).print_to(console)
    return whole


def _together(seconds: Sequence[float], stage: Stage, place: Place) -> float:
    """Of so many cells, as many at once as there are workers."""
    if not seconds:
        return 0.0
    at_once = 1 if stage.alone else min(place.engine.at_once, len(seconds))
    return math.ceil(len(seconds) / at_once) * sum(seconds) / len(seconds)


def _budget_table(place: Place, chosen: Sequence[Stage], given: Budget, expected: Expected) -> Table:
    """What is expected to be done in the time, in the order in which it is done."""
    table = Table(
        f"In {duration(given.seconds)}, in this order",
        ["step", "missing", "fit", "about", "others"],
        notes=[],
    )
    planned: set[Path] = set()
    nothing: list[str] = []
    now = 0.0
    if not place.blocks.is_dir() and any("data" in stage.needs for stage in chosen):
        now += place.scale.data.seconds
        table.rows.append(["text", "1", "1", duration(place.scale.data.seconds), ""])
    budget = Budget(given.left - now, lambda: now)
    for stage, part in in_order(place, chosen):
        missing = [path for path in stage.records(part) if not path.is_file() and path not in planned]
        if stage.name == "ablations" and len(place.rounds) > 1:  # runs of pre-training are made with their round
            missing = [path for path in missing if path.is_relative_to(place.out / "ablations")]
        if not missing:
            continue
        began, lost, later, fit = now, 0, 0, []
        waits = why_to_wait(stage, part, chosen, budget) is not None
        at_once = 1 if stage.alone else min(place.engine.at_once, len(missing))
        for path in missing:
            model = _model_of(stage, part, path)
            one = expected.of(stage, path)
            if model is not None and has_lost_weights(model):
                lost += 1
            elif model is not None and not has_weights(model) and not _is_planned(model, planned):
                later += 1
            elif not waits and one <= budget.ends - now:
                fit.append(path)
                now += one / at_once
        planned.update(fit)
        rest = len(missing) - len(fit) - lost - later
        others = [
            *([f"{rest} do not fit"] if rest else []),
            *([f"{lost} without weights"] if lost else []),
            *([f"{later} wait for their model"] if later else []),
        ]
        if not fit and not lost:
            nothing.append(title_of(stage, part))
            continue
        row = [title_of(stage, part), str(len(missing)), str(len(fit))]
        table.rows.append([*row, duration(now - began) if fit else "–", ", ".join(others)])
    table.notes.append(
        f"About {duration(now)} of it. A cell starts only if it is expected to end in time; without weights: the model "
        "has a record and is not here, so that what starts from it cannot run."
    )
    if nothing:
        table.notes.append(f"Left to later runs: {'; '.join(nothing)}.")
    return table


def _model_of(stage: Stage, place: Place, record: Path) -> Path | None:
    """The folder with the weights that a cell needs."""
    from triune.studies.searches import search_seed

    if stage.name not in (*_OF_A_TURN, "inspect", "time"):
        return None
    seed = FIRST_SEED if place.round is None else place.pretraining_seeds[0]
    if stage.name == "finetuning":
        _, task, label, name, _ = record.relative_to(place.out).parts
        is_search = name.startswith("search-")
        return place.run_of(label, search_seed(place, task) if is_search else seed) / MODEL
    if stage.name in ("noise", "transfer"):
        _, task, label, name = record.relative_to(place.out).with_suffix("").parts
        tuned, pretrained = place.out / "tasks" / task / label / name, place.run_of(label, seed) / MODEL
        can_never_be = not (tuned / RECORD).is_file() and has_lost_weights(pretrained)
        return pretrained if can_never_be else tuned / MODEL
    if stage.name == "inspect":
        return place.run_of(record.stem, seed) / MODEL
    last = place.run_of(place.in_turn[-1]) / MODEL  # it needs no weights, and waits until there were models
    return None if has_lost_weights(last) else last


def _is_planned(model: Path, planned: set[Path]) -> bool:
    return bool({model.parent / SUMMARY, model.parent / RECORD} & planned)
