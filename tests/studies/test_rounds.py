"""Several pre-training seeds, a search of rates, several lists of variants, a budget, and records without weights."""

import json
import re
import shutil

import pytest
import yaml

from tests.report import made
from tests.studies.conftest import arguments_with
from triune.data.examples import ids_sha256

MORE_VARIANTS = """
about: another list
reference: standard
variants:
  standard:
    about: own Q, K and V
    set: [model.operator=standard, "model.operator_settings={}"]
  symmetric:
    about: Q = K
    set: [model.operator=symmetric, "model.operator_settings={}"]
  own-rate:
    about: a rate that is not searched
    set: [model.operator=standard, "model.operator_settings={}", optimizer.learning_rate=2e-4]
"""
RATES = ["1e-30", "1e-3", "1e30"]  # nothing is learnt; something is; the loss is no number


@pytest.fixture(scope="module")
def arguments(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    (folder / "more.yaml").write_text(MORE_VARIANTS)
    tuned = yaml.safe_load((tiny.folder / "finetuning.yaml").read_text())
    (folder / "searched.yaml").write_text(yaml.safe_dump(tuned | {"search": {"learning_rates": [1e-3, 1e30]}}))
    settings = [
        f"finetuning.recipe={folder / 'searched.yaml'}",
        "pretraining.seeds=2",
        f"pretraining.search={{learning_rates: [{', '.join(RATES)}], steps: 3, seconds: 1}}",
        "pretraining.set=[training.log_every=1, training.evaluate_from=whole]",
        f"ablations.variants=[{tiny.folder / 'variants.yaml'}, {folder / 'more.yaml'}]",
        "finetuning.seeds=3",
        "finetuning.tasks=[mrpc, mnli]",
    ]
    return arguments_with(tiny, settings)


@pytest.fixture(scope="module")
def whole(arguments, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("rounds") / "out"
    result = command(*arguments, out)
    assert result.returncode == 0, result.stderr
    return out, result


@pytest.fixture(scope="module")
def published(whole, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "records"
    result = command("records", whole[0], folder)
    assert result.returncode == 0, result.stderr
    return folder


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_what_is_planned_is_written_for_the_report(whole):
    plan = read(whole[0] / "planned.json")
    assert plan["operators"] == ["standard", "shared"]
    assert plan["tasks"] == ["mrpc", "mnli"]
    assert (plan["pretraining_seeds"], plan["finetuning_seeds"]) == (2, 3)
    assert plan["learning_rates"] == list(map(float, RATES))


def test_models_are_looked_into_on_what_the_validation_loss_is_of(whole):
    assert read(whole[0] / "inspect/shared.json")["source"] == "4 blocks spread over the validation text"


def test_every_seed_has_a_run_of_its_own(whole):
    out, _ = whole
    for label in ("standard", "shared"):
        seeds = [read(out / f"runs/{label}/seed-{seed}/run.json")["recipe"]["training"]["seed"] for seed in (1, 2)]
        assert seeds == [1, 2]
        losses = {read(out / f"runs/{label}/seed-{seed}/summary.json")["validation_loss"] for seed in (1, 2)}
        assert len(losses) == 2


def test_fine_tuning_seeds_take_turns_at_the_pretrained_models(whole):
    out, _ = whole
    started = {}
    for seed in (1, 2, 3):
        record = read(out / f"tasks/mnli/shared/seed-{seed}/record.json")
        started[seed] = record["model_sha256"]
        assert record["model_path"].endswith(f"runs/shared/seed-{2 if seed == 2 else 1}/model")
    assert started[1] == started[3] != started[2]
    search = {path.parent.name: read(path) for path in (out / "tasks/mnli/shared").glob("search-*/record.json")}
    assert search.keys() == {"search-0.001", "search-1e+30"}
    assert {record["model_sha256"] for record in search.values()} == {started[1]}  # made once, on the first
    assert "diverged" in search["search-1e+30"]


def test_a_round_is_finished_before_the_next_one_begins(whole):
    said = [line.rpartition("] ")[2] for line in whole[1].stderr.splitlines() if "] " in line]
    second = next(number for number, line in enumerate(said) if "seed 2" in line)
    assert said[second].startswith("standard, seed 2: ")
    before, after = said[:second], said[second:]
    for cell in ("noise · MNLI · shared · seed 3", "inspect · shared", "own-rate · seed 1", "transfer · MRPC · shared"):
        assert any(line.startswith(cell) for line in before), cell
    assert not [line for line in after if "seed 1" in line or "seed 3" in line or "inspect" in line]
    noise = [line.partition(":")[0] for line in after if line.startswith("noise")]
    assert noise == [f"noise · MNLI · {label} · seed 2" for label in ("standard", "shared")]


def test_the_best_rate_of_the_grid_is_taken(whole):
    out, _ = whole
    tried = {path.parent.name: read(path) for path in (out / "rates/shared").glob("*/summary.json")}
    assert set(tried) == {"1e-30", "0.001", "1e+30"}
    assert "diverged" in tried["1e+30"]
    assert tried["0.001"]["validation_loss"] < tried["1e-30"]["validation_loss"]
    for run in ("runs/shared/seed-1", "runs/standard/seed-2", "ablations/symmetric/seed-1", "ablations/narrow/seed-2"):
        assert read(out / run / "run.json")["recipe"]["optimizer"]["learning_rate"] == 1e-3, run
    assert read(out / "ablations/own-rate/seed-1/run.json")["recipe"]["optimizer"]["learning_rate"] == 2e-4


def test_models_of_one_recipe_share_a_search_and_its_weights_are_not_kept(whole):
    out, _ = whole
    assert sorted(path.name for path in (out / "rates").iterdir()) == ["narrow", "shared", "standard", "symmetric"]
    assert {path.name for path in (out / "rates").rglob("*") if path.is_file()} == {"summary.json"}


def test_every_list_has_a_record_and_what_is_trained_already_is_not_trained_again(whole):
    out, _ = whole
    first, second = read(out / "ablations/variants.json"), read(out / "ablations/more.json")
    assert first["seeds"] == second["seeds"] == [1, 2]
    assert not (out / "ablations/standard").exists()
    for record in (first, second):
        standard = next(one for one in record["variants"] if one["name"] == "standard")
        assert standard["runs"] == [f"../runs/standard/seed-{seed}/summary.json" for seed in (1, 2)]
        losses = [read(out / "ablations" / run)["validation_loss"] for run in standard["runs"]]
        assert standard["validation_losses"] == losses


def test_the_plan_counts_a_run_once(arguments, command, tmp_path):
    """Of five variants with two seeds, `standard` and `shared` are runs of pre-training."""
    result = command(*arguments, tmp_path / "out", "--plan")
    [line] = [line for line in result.stdout.splitlines() if "ablations and controls" in line]
    assert [int(word) for word in line.split() if word.isdigit()][:2] == [6, 0], line


def test_the_report_tells_the_seeds_apart_and_gives_their_mean(whole):
    out, _ = whole
    losses = [read(out / f"runs/shared/seed-{seed}/summary.json")["validation_loss"] for seed in (1, 2)]
    rows = {}
    for line in (out / "report.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows.setdefault(cells[0], cells)
    assert rows["shared, seed 2"][4] == f"{losses[1]:.3f}"
    assert rows["shared, mean of 2 seeds"][4].startswith(f"{sum(losses) / 2:.3f} ± ")
    assert "Ablations and controls: more" in (out / "report.md").read_text()


def test_a_second_run_recomputes_nothing(whole, arguments, command):
    out, first = whole
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = command(*arguments, out)
    assert again.returncode == 0, again.stderr
    assert "Everything is finished" in again.stderr
    assert again.stdout == first.stdout
    assert [path for path, when in before.items() if path.stat().st_mtime_ns != when] == []


def test_published_records_are_small_and_say_nothing_of_the_machine(whole, published, tiny):
    out, _ = whole
    files = [path for path in published.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl"}
    assert max(path.stat().st_size for path in files) < 1_000_000
    text = "".join(path.read_text() for path in files)
    assert str(out) not in text
    assert str(tiny.folder) not in text
    assert read(published / "tasks/mnli/shared/seed-2/record.json")["model_path"] == "runs/shared/seed-2/model"
    assert (published / "rates/shared/0.001/summary.json").is_file()


def test_published_answers_to_questions_are_their_scores_alone(command, tmp_path):
    """Not the texts, and not the ids, which every run would repeat; what was scored stays known."""
    made.write_tasks(tmp_path / "results/tasks")
    folders = sorted((tmp_path / "results/tasks/squad-v1.1").glob("*/seed-*"))
    for folder in folders:
        (folder / "dev-n-best.json").write_text(json.dumps(["x" * 2_000_000]))
    assert command("records", tmp_path / "results", tmp_path / "records").returncode == 0
    ids = set()
    for folder in folders:
        copy = tmp_path / "records" / folder.relative_to(tmp_path / "results")
        assert sorted(path.name for path in copy.iterdir()) == ["dev.json", "record.json"]
        before, kept = read(folder / "dev.json"), read(copy / "dev.json")
        assert kept == {**before, "ids": ids_sha256(before["ids"])}
        ids.add(kept["ids"])
    assert len(ids) == 1
    again = command("records", tmp_path / "records", tmp_path / "copies")  # as they are gone on from
    assert again.returncode == 0, again.stderr
    assert read(tmp_path / "copies/tasks/squad-v1.1/shared/seed-1/dev.json")["ids"] in ids


def test_published_records_give_the_same_figures(whole, published, command, tmp_path):
    pages = []
    for number, folder in enumerate((whole[0], published)):
        result = command("report", folder, "--format", "md", "--out", tmp_path / f"{number}.md")
        assert result.returncode == 0, result.stderr
        pages.append((tmp_path / f"{number}.md").read_text())
    assert pages[0] == pages[1]


def test_publishing_again_changes_nothing_and_never_overwrites(whole, published, command, tmp_path):
    folder = tmp_path / "records"
    shutil.copytree(published, folder)
    assert "0 new records" in command("records", whole[0], folder).stdout
    other = folder / "runs/shared/seed-1/summary.json"
    other.write_text(json.dumps({**read(other), "validation_loss": 0.0}))
    (folder / "inspect/shared.json").unlink()
    result = command("records", whole[0], folder)
    assert result.returncode == 2
    assert "differs from" in result.stderr.splitlines()[-1]
    assert read(other)["validation_loss"] == 0.0
    assert not (folder / "inspect/shared.json").exists()  # all or nothing


@pytest.mark.parametrize("folder", ["out", "out/records", "out/a/../b", "."])
def test_copies_do_not_lie_among_the_results(folder, whole, command, tmp_path):
    shutil.copytree(whole[0] / "inspect", tmp_path / "out/inspect")
    before = sorted(tmp_path.rglob("*"))
    result = command("records", tmp_path / "out", tmp_path / folder)
    assert result.returncode == 2
    assert "must not be one folder, or one inside the other" in result.stderr.splitlines()[-1]
    assert sorted(tmp_path.rglob("*")) == before


def test_the_record_of_the_ablations_may_grow(whole, published, command, tmp_path):
    folder = tmp_path / "records"
    shutil.copytree(published, folder)
    path = folder / "ablations/more.json"
    record = read(path)
    record["seeds"] = [1]
    for variant in record["variants"]:
        variant["validation_losses"] = variant["validation_losses"][:1]
    path.write_text(json.dumps(record))
    assert "1 new records" in command("records", whole[0], folder).stdout
    assert read(path) == read(published / "ablations/more.json")
    record["variants"][0]["validation_losses"] = [0.0]
    path.write_text(json.dumps(record))
    assert command("records", whole[0], folder).returncode == 2


def test_a_large_record_is_refused(whole, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0] / "inspect", out / "inspect")
    path = out / "inspect/shared.json"
    path.write_text(json.dumps({**read(path), "more": "x" * 1_000_001}))
    result = command("records", out, tmp_path / "records")
    assert result.returncode == 2
    assert "are not copied" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "records").exists()


def test_from_published_records_it_goes_on(whole, published, arguments, command, tmp_path):
    """No weights are there: what has a record is done, what needs a model is said, and with a budget left out."""
    out = tmp_path / "out"
    shutil.copytree(published, out)
    result = command(*arguments, out)
    assert result.returncode == 0, result.stderr
    assert "Everything is finished" in result.stderr
    assert result.stdout == whole[1].stdout.replace(str(whole[0]), str(out))
    assert not list(out.rglob("*.safetensors"))
    for name in ("inspect/shared.json", "noise/mnli/standard/seed-2.json", "tasks/mrpc/shared/seed-3/record.json"):
        (out / name).unlink()
    without = command(*arguments, out)
    assert without.returncode == 2
    assert "there are no weights in" in without.stderr.splitlines()[-1]
    left = command(*arguments, out, "--budget", "1h")
    assert left.returncode == 0, left.stderr
    assert "cells are done" in left.stdout
    lines = [line for line in left.stdout.splitlines() if "has a record and no weights here" in line]
    assert any("runs/shared/seed-1/model" in line and "inspect · shared" in line for line in lines)
    assert any("runs/shared/seed-1/model" in line and "mrpc · shared · seed 3" in line for line in lines)
    assert any("noise · MNLI · standard · seed 2" in line for line in lines)


def test_a_search_whose_models_are_gone_is_made_with_those_of_the_next_round(whole, arguments, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    for label in ("standard", "shared"):
        shutil.rmtree(out / f"runs/{label}/seed-1/model")
        shutil.rmtree(out / f"tasks/mrpc/{label}/seed-2")
    shutil.rmtree(out / "tasks/mrpc/standard/search-0.001")
    result = command(*arguments, out, "--budget", "1h")
    assert result.returncode == 0, result.stderr
    second = {
        label: read(out / f"tasks/mnli/{label}/seed-2/record.json")["model_sha256"] for label in ("standard", "shared")
    }
    for label, model in second.items():  # all rates and operators of the task from one pre-training seed
        for name in ("search-0.001-from-2", "search-1e+30-from-2", "seed-2"):
            assert read(out / f"tasks/mrpc/{label}/{name}/record.json")["model_sha256"] == model, (label, name)
    assert not list((out / "tasks/mnli").glob("*/*-from-2"))
    lost = next(line for line in result.stdout.splitlines() if "has a record and no weights here" in line)
    assert "mrpc · standard · search, rate 0.001" in lost
    assert "none of the others can run" in result.stdout
    before = {path: path.stat().st_mtime_ns for path in (out / "tasks").rglob("*.json")}
    again = command(*arguments, out, "--budget", "1h")
    assert again.returncode == 0, again.stderr
    assert "none of the others can run" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in (out / "tasks").rglob("*.json")} == before


def test_inspection_and_time_do_not_end_with_the_weights_of_the_first_round(whole, arguments, command, tmp_path):
    """Of inspection the next round takes care; time needs no weights, and is the same cell without them."""
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    for label in ("standard", "shared"):
        shutil.rmtree(out / f"runs/{label}/seed-1/model")
    (out / "inspect/shared.json").unlink()
    shutil.rmtree(out / "time")
    planned = command(*arguments, out, "--budget", "1h", "--plan").stdout
    [row] = [line for line in planned.splitlines() if line.strip().startswith("training time, round 1 of 2")]
    assert row.split()[6:8] == ["1", "1"], row  # missing, and fit
    result = command(*arguments, out, "--budget", "1h")
    assert result.returncode == 0, result.stderr
    assert "cells are done" not in result.stdout
    second = read(out / "runs/shared/seed-2/summary.json")
    assert read(out / "inspect/shared.json")["model_path"].endswith("runs/shared/seed-2/model")
    assert read(out / "inspect/standard.json")["model_path"].endswith("runs/standard/seed-1/model")
    assert second["operator"] == read(out / "inspect/shared.json")["operator"]
    ours, theirs = (read(folder / "time/mrpc.json") for folder in (out, whole[0]))
    assert ours["identity"] == theirs["identity"]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    again = command(*arguments, out, "--budget", "1h")
    assert "Everything is finished" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json")} == before


def test_in_a_budget_what_is_there_can_be_compared_wherever_it_ends(arguments, command, tmp_path):
    result = command(*arguments, tmp_path / "out", "--budget", "1h", "--only", "noise,finetuning")
    assert result.returncode == 0, result.stderr
    said = [line.rpartition("] ")[2] for line in result.stderr.splitlines() if "] " in line]
    cells = [
        tuple(re.split(r" · |: ", line)[:3])
        for line in said
        if line.startswith(("MRPC", "MNLI", "mrpc", "mnli", "noise"))
    ]
    tuned = [(task.upper(), label, what) for task, label, what in cells if task != "noise" and "search" not in what]
    assert tuned == [
        (task, label, f"seed {seed}")
        for seed in (1, 3, 2)
        for task in ("MRPC", "MNLI")
        for label in ("standard", "shared")
    ]
    scored = cells.index(("MRPC", "shared", "seed 1"))
    assert cells.index(("MNLI", "standard", "search, rate 0.001")) > scored  # searched when its turn comes
    assert cells.index(("noise", "MNLI", "shared")) < cells.index(("MRPC", "standard", "seed 3"))


def test_in_a_budget_runs_of_pretraining_are_made_with_their_round_and_not_as_variants(arguments, command, tmp_path):
    out = tmp_path / "out"
    result = command(*arguments, out, "--budget", "1h", "--only", "ablations")
    assert result.returncode == 0, result.stderr
    assert (out / "ablations/own-rate/seed-2/summary.json").is_file()
    ran = re.findall(r"\] ([\w-]+) · seed (\d): validation loss", result.stdout + result.stderr)
    of_more = [seed for name, seed in ran if name != "narrow"]  # the list before has that one alone to run
    # A budget may end anywhere: all variants have their first seed before one has its second.
    assert (of_more, [seed for name, seed in ran if name == "narrow"]) == (["1", "1", "2", "2"], ["1", "2"])
    assert not (out / "runs").exists()
    assert "none of the others can run" in result.stdout
    assert f"a study that --only leaves out: {out / 'runs/shared/seed-1/summary.json'}" in result.stdout
    again = command(*arguments, out, "--budget", "1h", "--only", "pretraining,ablations")
    assert again.returncode == 0, again.stderr
    assert read(out / "ablations/more.json")["seeds"] == [1, 2]
    assert "cells are done" not in again.stdout


def test_variants_that_are_there_are_compared_before_all_of_them_are(whole, arguments, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    path, complete = out / "ablations/more.json", read(whole[0] / "ablations/more.json")
    for seed in (1, 2):
        shutil.rmtree(out / f"ablations/own-rate/seed-{seed}")
    result = command(*arguments, out, "--budget", "1s")
    assert result.returncode == 0, result.stderr
    assert read(path) == complete  # it says more
    path.unlink()
    assert command(*arguments, out, "--budget", "1s").returncode == 0
    part = read(path)
    assert part["missing"] == ["own-rate"]
    assert [one["name"] for one in part["variants"]] == ["standard", "symmetric"]
    assert part["seeds"] == [1, 2]
    assert "Still to run, and not in the table: own-rate." in (out / "report.md").read_text()
    assert command(*arguments, out, "--budget", "1h").returncode == 0
    assert read(path)["variants"] == complete["variants"]
    assert "missing" not in read(path)


def test_in_a_budget_an_old_record_of_a_later_list_gets_its_name(whole, tiny, arguments, command, tmp_path):
    """It is called as the first list's is to be: all lists are asked whose it is before that one is done."""
    out, first = tmp_path / "out", tmp_path / "ablations.yaml"
    shutil.copytree(whole[0], out)
    shutil.copy(tiny.folder / "variants.yaml", first)
    record = read(out / "ablations/more.json")
    kept = {name: value for name, value in record.items() if name != "list"}
    (out / "ablations/ablations.json").write_text(json.dumps(kept))
    for name in ("variants", "more"):
        (out / f"ablations/{name}.json").unlink()
    [lists] = [one for one in arguments if str(one).startswith("ablations.variants=")]
    own = [lists.replace(str(tiny.folder / "variants.yaml"), str(first)) if one == lists else one for one in arguments]
    result = command(*own, out, "--budget", "1h", "--only", "ablations")
    assert result.returncode == 0, result.stderr
    assert read(out / "ablations/more.json") == record
    assert "narrow" in {one["name"] for one in read(out / "ablations/ablations.json")["variants"]}


def test_every_record_says_what_its_cell_took(whole):
    out, _ = whole
    for name in (
        "parameters.json",
        "rates/shared/0.001/summary.json",
        "runs/shared/seed-1/summary.json",
        "tasks/mnli/shared/seed-1/record.json",
        "noise/mnli/shared/seed-1.json",
        "transfer/mrpc/shared/seed-1.json",
        "inspect/shared.json",
        "time/mrpc.json",
        "ablations/own-rate/seed-1/summary.json",
    ):
        assert read(out / name)["cell_seconds"] > 0, name


def test_what_does_not_fit_is_left_and_later_cells_that_do_are_run(whole, arguments, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    shutil.rmtree(out / "tasks/mrpc")  # no cell of it has been measured, so that what the scale says counts
    (out / "inspect/shared.json").unlink()
    result = command(*arguments, out, "--budget", "30m", "--set", "finetuning.seconds=7200")
    assert result.returncode == 0, result.stderr
    assert not list((out / "tasks/mrpc").rglob("record.json"))
    assert (out / "inspect/shared.json").is_file()
    assert "the shortest takes about 2.0 h" in result.stdout
    assert result.stdout.splitlines()[-1] == f"The page: {out / 'report.html'}"
    again = command(*arguments, out, "--budget", "30m")
    assert again.returncode == 0, again.stderr
    assert "cells are done" not in again.stdout
    ours, theirs = (read(folder / "tasks/mrpc/shared/seed-2/record.json") for folder in (out, whole[0]))
    assert ours["identity"] == theirs["identity"]


def test_a_budget_for_almost_nothing_ends_in_good_order(arguments, command, tmp_path):
    out = tmp_path / "out"
    result = command(*arguments, out, "--budget", "1s", "--only", "inspect", "--set", "pretraining.seconds=60")
    assert result.returncode == 0, result.stderr
    assert "0 of" in result.stdout
    assert "The page" not in result.stdout
    assert not list(out.rglob("*.safetensors"))


def test_a_search_in_which_all_diverge_is_one_line(arguments, command, tmp_path):
    search = "pretraining.search={learning_rates: [1e30], steps: 3, seconds: 1}"
    result = command(*arguments, tmp_path / "out", "--only", "pretraining", "--set", search)
    assert result.returncode == 2
    assert "standard, shared: every rate of the search diverged" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--budget", "soon"], "--budget 'soon' is no time: write it as 90s, 25m or 2h"),
        (["--budget", "5m", "--engine", "jobs"], "--budget is for this machine alone"),
        (["--set", "pretraining.seeds=0"], "pretraining.seeds must be at least 1, not 0"),
        (["--set", "pretraining.search={steps: 3}"], "pretraining.search holds learning_rates, steps and seconds"),
        (
            ["--set", "pretraining.search={learning_rates: [-1], steps: 3, seconds: 1}"],
            "must be a list of positive numbers",
        ),
        *(
            (
                ["--set", f"pretraining.search={{learning_rates: {rates}, steps: 3, seconds: 1}}"],
                "must be a list of positive numbers",
            )
            for rates in ('"123"', "[.nan]", "[.inf]", "[[1]]", "{1: 2}", "3", "[]")
        ),
        (["--set", "pretraining.search={1: 2}"], "steps and seconds, and not '1'"),
        (["--set", "pretraining.search={1: 2, a: 3}"], "steps and seconds, and not '1'"),
        (
            ["--set", "pretraining.search={learning_rates: [1], steps: 3, seconds: .nan}"],
            "pretraining.search.seconds must be at least 0, not nan",
        ),
        (
            ["--set", "pretraining.search={learning_rates: [1], steps: true, seconds: 1}"],
            "pretraining.search.steps must be a whole number",
        ),
        (["--set", "pretraining.settings={shared: 5}"], "pretraining.settings.shared must hold names and values"),
        (["--set", "pretraining.settings={shared: [role_start]}"], "settings.shared must hold names and values"),
        (["--set", "pretraining.settings={shared: {5: 6}}"], "settings.shared must hold names and values"),
        (["--set", "pretraining.settings={shared: {role_strat: signed}}"], "role_strat"),
        (["--set", "pretraining.settings={5: {}}"], "has '5', which is not among"),
        (["--set", "pretraining.set=[5]"], "pretraining.set must be a list of texts, and holds 5"),
        (["--set", "pretraining.operators=[5]"], "pretraining.operators must be a list of texts, and holds 5"),
        (["--set", "pretraining.operators=[[shared]]"], "pretraining.operators must be a list of texts"),
        (["--set", "ablations.set=[1]"], "ablations.set must be a list of texts, and holds 1"),
        (["--set", "ablations.variants=[1]"], "ablations.variants must be a list of texts, and holds 1"),
        (["--set", "finetuning.tasks=[{mnli: 1}]"], "finetuning.tasks must be a list of texts"),
        (["--set", "data.corpus=[1]"], "data.corpus must be a list of texts, and holds 1"),
        (["--set", "pretraining.seconds=.nan"], "pretraining.seconds must be at least 0, not nan"),
        (["--set", "inspect.seconds=.inf"], "inspect.seconds must be at least 0, not inf"),
        (["--set", "transfer.seconds=-5"], "transfer.seconds must be at least 0, not -5"),
        (["--set", "data.seconds=-1"], "data.seconds must be at least 0, not -1"),
        (["--set", "pretraining.set=[model.wdith=4]"], "unknown key 'model.wdith'"),
        (["--set", "ablations.variants=[]"], "ablations.variants must name one list"),
        (["--set", "ablations.variants=[ablations, ablations]"], "two lists called 'ablations'"),
    ],
)
def test_a_mistake_is_one_line(more, said, arguments, command, tmp_path):
    result = command(*arguments, tmp_path / "out", *more)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_two_variants_of_one_name_must_be_one(tiny, command, tmp_path):
    (tmp_path / "other.yaml").write_text(MORE_VARIANTS.replace("operator=standard,", "operator=symmetric,"))
    lists = f"ablations.variants=[{tiny.folder / 'variants.yaml'}, {tmp_path / 'other.yaml'}]"
    result = command(*tiny.arguments, tmp_path / "out", "--set", lists)
    assert result.returncode == 2
    assert "the variant 'standard' of 'other' is another one in 'variants'" in result.stderr.splitlines()[-1]
