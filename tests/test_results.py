"""The published results: every page is made again from its records, and every figure in words is on a page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from scipy.stats import fisher_exact

from triune.benchmarks.parameters import parameter_cell
from triune.cells import finished
from triune.report.answer_loss import loss_statement
from triune.report.gather import gather
from triune.report.page import KINDS, write_report
from triune.report.primary import primary
from triune.studies.place import Place
from triune.studies.scale import load_scale
from triune.studies.variants import lists_of, operator_recipes
from triune.training.recipe import recipe_from_dict
from triune.training.run_folder import identity_of

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGES = sorted(folder.name for folder in (RESULTS / "records").iterdir())
SCALES = [name for name in PAGES if name != "matching"]  # the others are runs of a scale


@pytest.fixture(scope="module")
def gathered():
    """Once for all: tests of significance take their time."""
    return {name: gather([RESULTS / "records" / name]) for name in PAGES}


@pytest.mark.parametrize("scale", PAGES)
def test_pages_are_what_the_records_give(scale, gathered, tmp_path):
    records, found = RESULTS / "records" / scale, gathered[scale]
    for kind in ("html", "md"):
        made = write_report([records], tmp_path / f"page.{kind}", kind, found)
        assert made.read_text() == (RESULTS / scale / KINDS[kind]).read_text()


@pytest.mark.parametrize("scale", SCALES)
def test_published_records_can_be_gone_on_with(scale):
    """Neither other defaults nor other recipes make them records of something else."""
    records = RESULTS / "records" / scale
    assert finished(parameter_cell(records / "parameters.json")) is not None
    place = Place(records, load_scale(scale))
    today = {place.run_of(label, 1).parent: recipe for label, recipe in operator_recipes(place).items()}
    if place.scale.pretraining.seeds == 1:
        today = {records / "runs" / label: recipe for label, recipe in operator_recipes(place).items()}
    for one in lists_of(place):
        kept = [variant for variant in one.ablations.variants if not variant.narrowed_to]  # those depend on the data
        today |= {records / "ablations" / variant.name: one.recipes[variant.name] for variant in kept}
    seen = 0
    for folder, recipe in today.items():
        for run in sorted(folder.rglob("run.json")):
            began = json.loads(run.read_text())
            was = recipe_from_dict(began["recipe"], str(run))
            assert was.to_dict() == began["recipe"]
            assert identity_of(was, began["data"]) == json.loads((run.parent / "summary.json").read_text())["identity"]
            assert as_written(was) == as_written(recipe), run
            seen += 1
    assert seen == {"base": 2, "sprint": 44}[scale]


def as_written(recipe):
    """Without what a search and a seed put into it."""
    return replace(
        recipe,
        about="",
        optimizer=replace(recipe.optimizer, learning_rate=1.0),
        training=replace(recipe.training, seed=1),
    )


@pytest.mark.parametrize("page", ["README.md", "sprint.md", "base.md", "levers.md", "matching.md", "../rolled.md"])
def test_figures_in_words_are_those_of_a_page(page):
    """Whole lines, so that a figure keeps what it is of; commands and names in code say nothing that was measured."""
    lines = {line for name in PAGES for line in (RESULTS / name / KINDS["md"]).read_text().splitlines()}
    words = (RESULTS / page).read_text()
    said = [line for line in words.splitlines() if re.search(r"\d\.\d", re.sub("`.*?`", "", line))]
    assert said
    assert [line for line in said if line not in lines] == []


def test_the_first_screen_says_what_the_tests_support(gathered):
    """In words: whoever lands records with another answer has to write another sentence."""
    loss, score = primary(gathered["sprint"]).measures
    assert (loss.ahead, score.ahead) == ("standard", None)
    first_screen = " ".join((RESULTS.parents[1] / "README.md").read_text().partition("## ")[0].split())
    assert "with shared weights are shown to reach a worse pre-training loss than those with separate" in first_screen
    assert "no difference in their mean score over nine GLUE and SQuAD tasks is shown" in first_screen
    loss, score = primary(gathered["base"]).measures
    assert loss.difference.effect > 0 > score.difference.effect
    assert not any(one.tested for one in (loss, score))
    assert all(one.better is None for one in gathered["base"].comparisons)
    behind = f"{loss.difference.effect:.3f} nats and {-score.difference.effect:.2f} points behind (not tested)"
    assert f"At base size, one pre-training of each, `shared` ended {behind}" in first_screen
    assert "on no task is a difference shown" in first_screen
    losses = {one["name"]: mean(one["validation_losses"]) for one in variants_of(gathered["sprint"], "ablations")}
    narrow, shared = (losses[name] - losses["standard"] for name in ("standard-narrow", "shared-signed"))
    assert f"({narrow:.3f} nats behind, where `shared` was {shared:.3f}; one run of each" in first_screen


def test_shares_and_sizes_in_words_are_those_of_the_records():
    """What no table of a page has: what rolled slices and halves take away of a distance, and the narrower model."""
    ablations = RESULTS / "records" / "sprint" / "ablations"
    confirmed = json.loads((ablations / "confirmed.json").read_text())["variants"]
    losses = {one["name"]: one["validation_losses"] for one in confirmed}
    seeds = zip(losses["standard"], losses["shared-signed"], losses["rolled"], strict=True)
    shares = [round(100 * (shared - rolled) / (shared - standard)) for standard, shared, rolled in seeds]
    levers, page = ((RESULTS / name).read_text() for name in ("levers.md", "../rolled.md"))
    assert f"is {shares[0]}, {shares[1]} and {shares[2]} %" in page
    assert f"{min(shares)} to {max(shares)} % of the distance" in levers
    turned = zip(*(losses[f"{name}-rotary"] for name in ("standard", "rolled", "rolled-halves")), strict=True)
    shares = [round(100 * (ones - halves) / (ones - standard)) for standard, ones, halves in turned]
    assert all(f"away {min(shares)} to {max(shares)} % of what" in text for text in (levers, page))
    narrow = json.loads((ablations / "standard-narrow" / "seed-1" / "run.json").read_text())["recipe"]["model"]
    assert f"(width {narrow['width']}, feed-forward {narrow['feed_forward']:,};" in levers


def test_what_words_say_of_the_curves_of_base_size_is_in_its_records(gathered):
    words = " ".join((RESULTS / "base.md").read_text().split())
    runs = {run["label"]: run for run in gathered["base"]["pretraining"]}
    rows = {label: [row for row in run["metrics"] if "validation_loss" in row] for label, run in runs.items()}
    apart = [b["validation_loss"] - a["validation_loss"] for a, b in zip(rows["standard"], rows["shared"], strict=True)]
    assert "at every evaluation, by a quarter of a nat at the first and by less than a tenth at the end, still" in words
    assert min(apart) > 0
    assert apart[0] == pytest.approx(1 / 4, abs=0.01)
    assert 0.07 < apart[-1] < 0.1
    assert apart[-1] < min(apart[:-8])
    assert "The small pair with this start and these positions ended a tenth of a nat apart" in words
    confirmed = {one["name"]: mean(one["validation_losses"]) for one in variants_of(gathered["sprint"], "confirmed")}
    assert confirmed["shared-halves-rotary"] - confirmed["standard-rotary"] == pytest.approx(0.1, abs=0.01)
    assert "A step of `shared` is a sixth shorter" in words
    assert runs["standard"]["tokens_per_second"] / runs["shared"]["tokens_per_second"] == pytest.approx(5 / 6, abs=0.01)
    assert "ended after 81 % of its tokens, in about the time of the whole run of `shared` (on machines that" in words
    there = next(row for row in rows["standard"] if row["validation_loss"] <= runs["shared"]["validation_loss"])
    assert round(100 * there["tokens"] / runs["standard"]["tokens"]) == 81
    assert there["elapsed"] / rows["shared"][-1]["elapsed"] == pytest.approx(1, abs=0.03)
    assert runs["shared"]["matmul_tflops"] / runs["standard"]["matmul_tflops"] == pytest.approx(1, abs=0.03)


def test_what_words_say_of_matching_heads_is_in_its_records(gathered):
    words = (RESULTS / "matching.md").read_text()
    got_there = dict.fromkeys(("shared", "matching", "one-segment", "standard", "unlike", "late"), 0)
    for run in gathered["matching"]["finetuning"]:
        assert run["primary"] > 60 or run["primary"] < 40
        got_there[run["model"]] += run["primary"] > 60
    assert f"| fine-tunings above 60, of six | {' | '.join(str(count) for count in got_there.values())} |" in words
    assert len(gathered["matching"]["finetuning"]) == 6 * len(got_there)
    scores = {
        name: [run["primary"] for run in gathered["matching"]["finetuning"] if run["model"] == name]
        for name in got_there
    }
    assert sum(score >= min(scores["shared"]) for score in scores["matching"]) == 3
    assert "five times of six, three times as high as `shared`" in words
    of_six = [[got_there[name], 6 - got_there[name]] for name in ("matching", "standard")]
    exact, tested = fisher_exact(of_six).pvalue, len(got_there) - 2  # those that are not shared against standard
    assert tested == 4
    assert f"p of {1000 * exact:.0f} in 1,000, after the correction for four {100 * tested * exact:.0f} in 100" in words
    across = json.loads((RESULTS / "matching" / "across.json").read_text())
    assert across.keys() == got_there.keys()
    for model, looked in across.items():
        line = "".join(f" {100 * max(heads):.0f} % |" for heads in looked["heads"])
        assert f"| `{model}` |{line}\n" in words
        assert f"Attention that is even\nwould give {100 * looked['even']:.0f} %" in words


def test_what_words_say_of_the_tasks_of_base_size_is_in_its_records(gathered):
    found, words = gathered["base"], " ".join((RESULTS / "base.md").read_text().split())
    compared = {one.task.removesuffix(" (subset)"): one for one in found.comparisons}
    effects = {task: one.effect for task, one in compared.items()}
    whole = sum(effect for task, effect in effects.items() if task != "WNLI")
    assert "found with each of the five fine-tunings, is two thirds CoLA and a quarter SQuAD (five and two" in words
    (each,) = re.findall(r"By fine-tuning (.*?)\.( |$)", primary(found).measures[1].remark)
    assert [figure[0] for figure in each[0].split(", ")] == ["−"] * 5
    assert effects["CoLA"] / whole == pytest.approx(2 / 3, abs=0.03)
    assert effects["SQuAD v1.1"] / whole == pytest.approx(1 / 4, abs=0.04)
    assert [round(effects.pop(task)) for task in ("CoLA", "SQuAD v1.1")] == [-5, -2]
    assert "the means lie within a third of a point, with intervals of up to four points to either side (RTE)" in words
    assert len(effects) == 8
    assert max(map(abs, effects.values())) < 1 / 3
    halves = {task: (compared[task].interval[1] - compared[task].interval[0]) / 2 for task in effects if task != "WNLI"}
    assert max(halves, key=halves.get) == "RTE"
    assert round(halves["RTE"]) == 4
    rates = {(one["task"], one["model"]): one["recipe"]["optimizer"]["learning_rates"] for one in found["finetuning"]}
    assert "On CoLA `shared` took the lowest rate of the grid, on SQuAD both took the highest" in words
    assert rates["cola", "shared"] == [5e-5]
    assert rates["squad-v1.1", "shared"] == rates["squad-v1.1", "standard"] == [2e-4]
    assert "loses less on all three tasks, as on all three in the small models" in words
    pairs = {"standard", "shared"}
    swapped = [
        (one.effect if one.b == "shared" else -one.effect)
        for scale in ("base", "sprint")
        for one in gathered[scale].noise_comparisons
        if one.task.endswith("swapped words") and {one.a, one.b} == pairs
    ]
    assert len(swapped) == 6
    assert min(swapped) > 0
    lost = {}
    for record in found["noise"]:
        clean, *levels = (mean(level["scores"]) for level in record["curves"]["gaussian"])
        lost.setdefault((record["task"], record["model"]), []).append(clean - min(levels))
    assert "Gaussian noise costs both little more than one point at most" in words
    assert 1 < max(map(mean, lost.values())) < 1.5


def test_how_many_tokens_standard_needs_is_in_the_records(gathered):
    words = " ".join((RESULTS / "README.md").read_text().split())
    assert (
        "`standard` reaches the loss of `shared` with two thirds of the tokens, of base size with four fifths" in words
    )
    assert "the arithmetic of `shared` is a sixth less" in words
    said = {scale: loss_statement(gathered[scale]).text for scale in ("base", "sprint")}
    assert "After 66 to 70 % of its tokens standard had reached the loss at which shared ended." in said["sprint"]
    assert "After 81 % of its tokens standard had reached the loss at which shared ended." in said["base"]
    for scale in ("base", "sprint"):
        of_shared = [one for record in gathered[scale]["time"] for one in record["contestants"]]
        less = [1 - one["flop_ratio"] for one in of_shared if one["operator"] == "shared"]
        assert less == [pytest.approx(1 / 6, abs=0.01)] * len(less)


def variants_of(found, name):
    (study,) = [one for one in found["ablations"] if Path(one["file"]).stem == name]
    return study["variants"]
