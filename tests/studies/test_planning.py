"""In what order cells come, what they are expected to take, and which round is begun in a budget of time."""

import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from triune.budget import Budget
from triune.cells import Engine
from triune.errors import TriuneError
from triune.studies.place import Place, check, make_data
from triune.studies.planning import Expected, in_order, show_plan, title_of, why_to_wait
from triune.studies.pretraining import ablation_records
from triune.studies.rates import rate_records
from triune.studies.reproduce import STAGES
from triune.studies.scale import load_scale
from triune.training.recipe import load_recipe

SETTINGS = [
    "pretraining.operators=[standard, symmetric, shared]",
    "pretraining.seeds=2",
    "pretraining.seconds=20",
    "finetuning.seeds=4",
    "finetuning.seconds=5",
    "inspect.seconds=0",
]


@pytest.fixture
def clock():
    return SimpleNamespace(now=0.0)


@pytest.fixture
def place(tiny, tmp_path, clock):
    """Two rounds of three models, each 60 seconds of pre-training, 90 of fine-tuning, 18 of noise and transfer."""
    budget = Budget(1000.0, lambda: clock.now)
    return Place(tmp_path / "out", load_scale(str(tiny.scale), SETTINGS), tiny.data, Engine(workers=1, budget=budget))


def test_values_of_the_recipes_of_fine_tuning_can_be_set(tiny, tmp_path):
    scale = load_scale(str(tiny.scale), ["finetuning.set=[training.batch=5]"])
    own, plain = (Place(tmp_path / "out", one, tiny.data) for one in (scale, load_scale(str(tiny.scale))))
    assert [own.recipe_for(task).training.batch for task in ("mnli", "squad-v1.1")] == [5, 5]
    assert plain.recipe_for("mnli").training.batch != 5


def test_the_operator_of_the_recipe_itself_need_not_be_known(tiny, tmp_path):
    """Those of the scale take its place."""
    path = tmp_path / "own.yaml"
    path.write_text((tiny.folder / "pretraining.yaml").read_text().replace("operator: shared", "operator: of-a-plugin"))
    with pytest.raises(TriuneError, match="unknown operator 'of-a-plugin'"):
        load_recipe(str(path))
    place = Place(tmp_path / "out", load_scale(str(tiny.scale), [f"pretraining.recipe={path}"]), tiny.data)
    check(place)
    make_data(place, lambda _: None)
    assert (place.blocks / "manifest.json").is_file()


def steps(place):
    return [(stage.name, part.round, part.turn) for stage, part in in_order(place, list(STAGES.values()))]


def write(path, **record):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def test_with_a_budget_all_that_is_made_of_a_seed_comes_before_the_next(place):
    first = [one for one in steps(place) if one[1] == 0]
    assert first[2:9] == [
        ("pretraining", 0, None),
        *((name, 0, seed) for seed in (1, 3) for name in ("finetuning", "noise", "transfer")),
    ]
    assert [name for name, *_ in first[9:]] == ["inspect", "time", "ablation-rates", "ablations"]
    assert {turn for name, number, turn in steps(place) if number == 1 and name == "noise"} == {2, 4}


def test_with_a_budget_a_list_of_variants_is_finished_before_the_next(place, tiny):
    lists = [str(tiny.folder / "variants.yaml"), "levers"]
    scale = replace(place.scale, ablations=replace(place.scale.ablations, variants=lists))
    two = replace(place, scale=scale)

    def stages(place):
        found = [one for one in in_order(place, list(STAGES.values())) if one[1].round == 0]
        return [(stage.name, part.variants, title_of(stage, part)) for stage, part in found if "ablation" in stage.name]

    assert stages(two) == [
        ("ablation-rates", lists[0], "rates of the ablations, round 1 of 2, variants"),
        ("ablations", lists[0], "ablations and controls, round 1 of 2, variants"),
        ("ablation-rates", "levers", "rates of the ablations, round 1 of 2, levers"),
        ("ablations", "levers", "ablations and controls, round 1 of 2, levers"),
    ]
    assert [name for _, name, _ in stages(replace(two, engine=Engine()))] == [None, None]
    of_levers = {path.parent.parent.name for path in ablation_records(replace(two, variants="levers", round=0))}
    assert {"rolled", "shared-halves"} < of_levers
    assert "narrow" not in of_levers


@pytest.mark.parametrize("engine", [Engine(), Engine(budget=Budget(60.0))])
def test_variants_alone_do_not_wait_for_rounds(engine, place):
    """They need no weights: with a list of three seeds no worker is idle until the others have ended a seed."""
    alone = replace(place, engine=engine)
    found = list(in_order(alone, [STAGES[name] for name in ("rates", "ablation-rates", "ablations")]))
    assert [(stage.name, part.round) for stage, part in found] == [
        ("rates", None),
        ("ablation-rates", None),
        ("ablations", None),
    ]
    assert title_of(*found[-1]) == "ablations and controls"
    records = [path for stage, part in found if stage.name == "ablations" for path in stage.records(part)]
    assert sorted(records) == sorted({path for part in place.rounds for path in STAGES["ablations"].records(part)})


def test_a_model_has_one_search_whichever_list_is_done(place, tmp_path):
    """Named as it is without a budget: by a list that has it first, whatever the variants and operators are called."""
    tied = {"about": "", "set": ["model.operator=kv-tied", "model.operator_settings={}"]}
    plain = {"about": "", "set": ["model.operator=standard", "model.operator_settings={}"]}
    for name, variants in {"one": {"tied": tied}, "two": {"bound": tied, "other": plain}}.items():
        listed = {"reference": "standard", "variants": {"standard": plain, **variants}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(listed))
    lists = [str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")]
    search = {"learning_rates": [1e-3, 2e-3], "steps": 3, "seconds": 1}
    part = replace(place.scale.ablations, variants=lists, set=["optimizer.warmup=0.2"])  # other models than the paper's
    scale = replace(place.scale, ablations=part, pretraining=replace(place.scale.pretraining, search=search))
    both = replace(place, scale=scale)
    by_list = [
        [path.parent.parent.name for path in rate_records(replace(both, variants=name), of_operators=False)]
        for name in lists
    ]
    assert by_list == [["one-standard"] * 2 + ["tied"] * 2, ["one-standard"] * 2 + ["tied"] * 2]
    assert {path.parent.parent.name for path in rate_records(both, of_operators=False)} == {"one-standard", "tied"}


def test_without_one_the_seeds_of_a_round_are_done_together(place, tiny):
    plain = replace(place, engine=Engine())
    assert [one for one in steps(plain) if one[0] == "noise"] == [("noise", 0, None), ("noise", 1, None)]
    assert [name for name, *_ in steps(replace(plain, scale=load_scale(str(tiny.scale))))] == list(STAGES)


@pytest.mark.parametrize("study", ["noise", "transfer"])
def test_models_of_a_seed_and_task_come_one_after_the_other(study, place):
    records = STAGES[study].records(replace(place, round=0))
    tasks = getattr(place.scale, study).tasks
    names = [path.relative_to(place.out / study).with_suffix("").parts for path in records]
    labels = ("standard", "shared", "symmetric")
    assert names == [(task, label, f"seed-{seed}") for seed in (1, 3) for task in tasks for label in labels]


def test_the_models_that_the_question_is_about_are_trained_first(place):
    names = [path.relative_to(place.out).as_posix() for path in STAGES["pretraining"].records(place.rounds[1])]
    assert names == [f"runs/{label}/seed-2/summary.json" for label in ("standard", "shared", "symmetric")]


@pytest.mark.parametrize(
    ("spent", "waits"),
    [(0, False), (499, False), (501, False), (831, False), (833, True), (1500, True)],
)
def test_a_round_is_begun_where_it_fits(spent, waits, place, clock):
    clock.now = float(spent)
    said = why_to_wait(STAGES["pretraining"], place.rounds[1], list(STAGES.values()), place.engine.budget)
    assert (said is not None) == waits
    if waits:
        assert "round 2 of 2: left to another run. The round takes about 3 min" in said
        assert place.engine.budget.shortest_left_out == 20.0  # so that the end says that the same command goes on


def test_a_round_that_is_longer_than_a_run_is_begun_in_its_first_half(place, clock):
    budget = Budget(160.0, lambda: clock.now)
    clock.now = 60.0  # for the text
    budget.count_from_now()
    for spent, waits in ((60.0, False), (109.0, False), (111.0, True)):
        clock.now = spent
        said = why_to_wait(STAGES["pretraining"], place.rounds[0], list(STAGES.values()), budget)
        assert (said is not None) == waits, spent


def test_what_is_trained_needs_no_time(place, clock):
    for path in STAGES["pretraining"].records(place.rounds[0]):
        write(path)
    clock.now = 999.0
    stages = list(STAGES.values())
    assert why_to_wait(STAGES["pretraining"], place.rounds[0], stages, place.engine.budget) is None
    assert why_to_wait(STAGES["finetuning"], place.rounds[1], stages, place.engine.budget) is None


def test_the_longest_in_the_records_is_expected_kind_by_kind(place):
    tuned = place.out / "tasks/mnli/standard"
    write(tuned / "seed-1/record.json", cell_seconds=7.0, train_seconds=3.0)
    write(tuned / "seed-2/record.json", cell_seconds=9.0)
    write(tuned / "seed-3/record.json", cell_seconds=900.0, diverged="at step 3")
    expected, stage = Expected(place), STAGES["finetuning"]
    mnli, mrpc = (place.out / f"tasks/{task}/shared/seed-4/record.json" for task in ("mnli", "mrpc"))
    assert (expected.of(stage, mnli), expected.of(stage, mrpc)) == (9.0, 5.0)
    assert expected.said(stage, [mnli]) == "9 s, measured"
    assert expected.said(stage, [mrpc]) == "5 s, by the scale"
    assert expected.said(stage, [mnli, mrpc]) == "5 s to 9 s, partly measured"
    assert expected.said(STAGES["inspect"], [place.out / "inspect/shared.json"]) == "unknown"


def planned(place):
    console = Console(record=True, width=300, file=io.StringIO())
    show_plan(place, list(STAGES.values()), console)
    text = console.export_text().partition("in this order")[2]
    rows = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines())
    return {row[0]: row[1:] for row in rows}, text


def test_the_plan_of_a_budget_says_what_fits_and_what_does_not(place, clock):
    clock.now = 850.0
    rows, text = planned(place)
    # 150 seconds are left: one for the text, three for parameters, 60 for models; of seed 1 all fits, of seed 3 a part.
    title = "fine-tuning, round 1 of 2, seed"
    assert rows[f"{title} 1"] == ["9", "9", "45 s"]
    assert rows[f"{title} 3"] == ["9", "6", "30 s", "3 do not fit"]
    assert text.index("round 1 of 2") < text.index("Left to later runs")
    assert "pre-training, round 2 of 2" in text.partition("Left to later runs")[2]


def test_more_workers_than_runs_make_no_run_shorter(place):
    rows, _ = planned(replace(place, engine=replace(place.engine, workers=10)))
    assert rows["pre-training, round 1 of 2"] == ["3", "3", "20 s"]
    assert rows["fine-tuning, round 1 of 2, seed 1"] == ["9", "9", "5 s"]
    assert rows["parameters, round 1 of 2"] == ["1", "1", "3 s"]


def test_what_has_lost_its_weights_is_in_the_plan(place):
    for path in STAGES["pretraining"].records(place.rounds[0]):
        write(path)
    rows, _ = planned(place)
    title = title_of(STAGES["finetuning"], replace(place.rounds[0], turn=1))
    assert "9 without weights" in rows[title]
