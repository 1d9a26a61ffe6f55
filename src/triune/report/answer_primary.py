"""The comparison that is always made, so that none of the many others can be picked in its place afterwards."""

from statistics import mean, stdev

from triune.report import planned
from triune.report.gather import Gathered
from triune.report.primary import Measure, Primary, primary
from triune.report.scores import files_of, p_value
from triune.report.statement import UNTESTED, Statement
from triune.report.tables import Table


def primary_statement(found: Gathered) -> Statement | None:
    known = primary(found)
    if known is None:
        return None
    text = (
        f"Always made, whatever the records show: {known.pair[1]} against {known.pair[0]} on validation loss and on "
        "the mean score"
    )
    tests_follow = known.tested or any(plan["pretraining_seeds"] > 1 for plan in found[planned.STUDY])
    if tests_follow:
        text += ", t tests over pre-trainings, corrected for the two (Holm; intervals are not); all other comparisons "
        text += "are secondary"
    text += "."
    if found.waits_for:
        text += f" So far, not tested{' yet' if tests_follow else ''} ({found.waits_for}):"
    for one in known.measures:
        tested = "" if found.waits_for else f"{one.interval}, over {one.over}: {one.verdict}"
        text += f" {one.what} {one.effect}{tested}.{one.remark and f' {one.remark}'}"
    if len(known.measures) == 1:
        text += " The other one is not in these records for the same seeds of both."
    ahead = {one.ahead for one in known.measures if one.ahead is not None}
    leans = "both" if len(ahead) > 1 else next(iter(ahead), "none")
    untested = found.waits_for or not known.tested
    return Statement("Primary comparison", text, "table-1", UNTESTED if untested else leans)


def primary_headline(known: Primary) -> str:
    """What both measures show, in a sentence."""
    said = []
    for one in known.measures:
        name = one.what[0].lower() + one.what[1:]
        figures = f"{known.pair[1]} {one.effect}, p {p_value(one.p)}"
        if not one.tested:
            said.append(f"a difference in {name} is not tested ({known.pair[1]} {one.effect})")
        elif one.ahead is None:
            said.append(f"no difference in {name} is shown ({figures})")
        else:
            who = "separate" if one.ahead == "standard" else "shared"
            more = "higher" if one.more_is_better else "lower"
            said.append(f"{who} weights are shown to reach a {more} {name} ({figures})")
    return f"In these runs {' and '.join(said)}."


def untested_headline(known: Primary) -> str:
    """What one model of each kind reached: no more than that, and said before what the tasks' own tests do not show."""
    said = ", ".join(f"{one.what[0].lower()}{one.what[1:]} {one.effect}" for one in known.measures)
    return f"{known.pair[1]} − {known.pair[0]} (not tested): {said}."


def primary_tables(found: Gathered) -> list[Table]:
    """Both measures of every model that has them over the same pre-trainings; tested is the pair alone."""
    known = primary(found)
    if known is None:
        return []
    table = Table("The two measures of the primary comparison", ["model"], notes=[])
    labels = [label for label in found.models if any(label in one.values for one in known.measures)]
    table.rows = [[label] for label in labels]
    for one in known.measures:
        for number, (label, row) in enumerate(zip(labels, table.rows, strict=True)):
            own = [record for record in one.records if label == (record.get("label") or record["model"])]
            table.sources[number, len(table.columns)] = files_of(own)
            row += _cells(one, label, known.pair[0])
        table.columns += [f"{one.what}, {one.unit}", f"− {known.pair[0]}"]
        if found.waits_for is None and one.tested:
            table.notes.append(
                f"{one.what}: {known.pair[1]} − {known.pair[0]} {one.effect}{one.interval}, p {p_value(one.p)} after "
                f"Holm's method for both measures; by pre-training {one.by_pretraining(known.pair)}."
            )
        elif found.waits_for is None:
            table.notes.append(f"{one.what}: over {one.over}, not tested.")
        if one.remark:
            table.notes.append(one.remark)
    values = "Mean ± standard deviation over pre-trainings; each" if known.tested else "Each pre-training"
    about = " A test of the mean score is about these development sets: how it would be on others is not in it."
    table.notes.insert(
        0,
        f"{values} counts once, with the mean of its fine-tunings. WNLI is in no mean.{about if known.tested else ''}",
    )
    return [table]


def _cells(measure: Measure, label: str, reference: str) -> list[str]:
    if label not in measure.values:
        return ["–", "–"]
    values, base = measure.values[label], mean(measure.values[reference])
    difference = "" if label == reference else measure.figure(mean(values) - base)
    spread = f" ± {measure.figure(stdev(values), '')}" if len(values) > 1 else ""
    return [f"{measure.figure(mean(values), '')}{spread}", difference]
