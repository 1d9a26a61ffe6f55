import json

import pytest

from tests.report import made
from triune.report.answer import headline, short_answer, statements
from triune.report.gather import gather
from triune.report.noise import noise_comparisons
from triune.report.sections import sections


def said(found):
    return {one.topic: one for one in statements(found)}


@pytest.mark.parametrize(
    ("better", "begins", "leans"),
    [
        (
            "standard",
            "In these runs separate weights are shown to do better on 4 of 4 tasks and shared weights on none",
            "standard",
        ),
        (
            "shared",
            "In these runs shared weights are shown to do better on 4 of 4 tasks and separate weights on none",
            "shared",
        ),
        ("none", "Undecided in these runs: on none of 4 tasks is a difference", "none"),
    ],
)
def test_the_answer_is_what_the_tests_support(tmp_path, better, begins, leans):
    made.write_tasks(tmp_path, better)
    found = gather([tmp_path])
    assert headline(found).startswith(begins)
    tasks = said(found)["Tasks"]
    assert tasks.leans == leans
    assert "over 3 fine-tuning seeds, corrected for all 4 comparisons" in tasks.text
    assert "Each was pre-trained once" in tasks.text


def test_it_may_depend_on_the_task(tmp_path):
    for seed, wrong in zip(made.SEEDS, (20, 21, 22), strict=True):
        for task, ahead in (("mrpc", "standard"), ("sst2", "shared")):
            for model in ("standard", "shared"):
                made.task_record(tmp_path, task, model, seed, wrong if model == ahead else 80 + seed % 2)
    found = gather([tmp_path])
    assert headline(found).startswith("In these runs it depends on the task: separate weights are shown")
    assert said(found)["Tasks"].leans == "both"
    assert "standard is shown to be better on 1 (MRPC), shared on 1 (SST-2); none is left" in said(found)["Tasks"].text


def test_one_seed_says_so(tmp_path):
    made.write_tasks(tmp_path, "standard", seeds=(1,))
    assert "With one seed nothing is said about the noise of training." in said(gather([tmp_path]))["Tasks"].text


def test_everything_there_is_has_a_statement(gathered):
    statements = said(gathered)
    assert not [one.topic for one in statements.values() if one.leans == "missing"]
    assert "nothing follows for real text" in statements["What was run"].text
    assert "saves 12.92 %" in statements["Parameters"].text
    assert "95,367,738 instead of 109,514,298" in statements["Parameters"].text
    assert "1.600 nats with shared, 1.300 with standard (+0.300)" in statements["Pre-training loss"].text
    assert "no significance can be told" in statements["Pre-training loss"].text
    assert "for 4 pairs of a task and a kind of noise: shared is shown to lose less in 4" in statements["Noise"].text
    assert statements["Noise"].leans == "shared"
    assert "On none of 2 cells is a difference between standard and shared shown." in statements["Other tasks"].text
    time = statements["Training time"].text
    assert "5.0 to 25.0 % shorter than with standard (medians of 3 epochs, 2 tasks)" in time
    assert statements["Parameters"].leans == "fact"
    assert "only rounded otherwise" in statements["What was run"].text
    assert "its arithmetic is 10.0 % less. On 1 the saving is more than arithmetic gives" in time
    assert "shown to differ from standard: shared-signed" in statements["Ablations"].text


def test_what_is_missing_is_said_with_the_command_that_makes_it(tmp_path):
    made.inspect_record(tmp_path, "shared")
    found = gather([tmp_path])
    assert headline(found).startswith("Not answered by these records")
    assert all(one.leans == "missing" for one in statements(found))
    assert "`triune noise" in said(found)["Noise"].text
    lines = short_answer([tmp_path])
    assert lines[0] == "Does self-attention need separate weights?"
    assert len(lines) == 2 + len(statements(found))


@pytest.mark.parametrize(
    ("losses", "verdict", "leans"),
    [
        ({"standard": (1.30, 1.31, 1.32), "shared": (1.60, 1.62, 1.61)}, "the difference is shown", "standard"),
        ({"standard": (1.60, 1.62, 1.61), "shared": (1.30, 1.31, 1.32)}, "the difference is shown", "shared"),
        ({"standard": (1.30, 1.50, 1.40), "shared": (1.45, 1.38, 1.40)}, "no difference is shown", "none"),
    ],
)
def test_several_pre_trainings_are_tested(tmp_path, losses, verdict, leans):
    for operator, values in losses.items():
        for seed, loss in enumerate(values, start=1):
            made.write_run(tmp_path / operator / f"seed-{seed}", operator, loss, seed)
    statement = said(gather([tmp_path]))["Pre-training loss"]
    assert f"Over 3 seeds {verdict}" in statement.text
    assert statement.leans == leans


def test_what_the_design_can_show_is_said(tmp_path):
    made.write_tasks(tmp_path, "none")
    text = said(gather([tmp_path]))["Tasks"].text
    assert "The largest difference (shared − standard), M" in text
    assert "(interval not corrected), is not shown either." in text
    # Student's t with 2 degrees of freedom at 0.05 / 4, two-sided, is 8.86; over the root of 3 seeds
    assert "with 3 seeds and 4 comparisons" in text
    assert "more than 5.1 times its standard deviation" in text


def test_records_of_one_model_are_not_called_missing(tmp_path):
    made.write_run(tmp_path / "runs" / "shared", "shared", 1.5)
    made.task_record(tmp_path / "tasks", "sst2", "shared", 1, 30)
    made.noise_record(tmp_path / "noise", "sst2", "shared", 1, 10.0)
    made.transfer_record(tmp_path / "transfer", "mnli", "shared", 1, {"mnli": 20, "mrpc": 60})
    statements = said(gather([tmp_path]))
    for topic in ("Pre-training loss", "Tasks", "Noise", "Other tasks"):
        assert statements[topic].text == "Records of one model only: nothing to compare."
        assert statements[topic].leans == "alone"
    assert statements["Training time"].leans == "missing"


def rewrite(path, change):
    record = json.loads(path.read_text())
    change(record)
    made.write(path, record)


def test_the_reference_of_times_is_known_by_its_operator(tmp_path):
    made.time_record(tmp_path, "cola", 0.75, 0.9)

    def rename(record):
        record["reference"] = record["contestants"][0]["model"] = "mine"

    rewrite(tmp_path / "cola.json", rename)
    assert "25.0 % shorter" in said(gather([tmp_path]))["Training time"].text


def test_other_operators_beyond_arithmetic_are_a_warning(tmp_path):
    made.time_record(tmp_path, "cola", 0.95, 0.9)

    def add(record):
        other = {"model": "symmetric", "operator": "symmetric", "ratio": 0.8, "flop_ratio": 0.92}
        record["contestants"].append(record["contestants"][1] | other)

    assert "with care" not in said(gather([tmp_path]))["Training time"].text
    rewrite(tmp_path / "cola.json", add)
    text = said(gather([tmp_path]))["Training time"].text
    assert "Read it with care: others save more than arithmetic gives, symmetric 20.0 % (arithmetic 8.0 %)." in text


def write_rounds(folder, finetunings=6, pretrainings=3, lost=10.0):
    """Shared is worse by about `lost` rows and 0.3 nats; fine-tuning seeds take turns at the pre-trained models."""
    for number in range(1, pretrainings + 1):
        for operator, loss in (("standard", 1.3), ("shared", 1.6)):
            made.write_run(folder / "runs" / operator / f"seed-{number}", operator, loss + number**2 / 100, number)
    made.write_run(folder / "runs" / "shared" / "seed-1", "shared", 1.65, 1)
    for seed in range(1, finetunings + 1):
        model = (seed - 1) % pretrainings + 1
        for operator, wrong in (("standard", 20 + seed), ("shared", round(20 + lost) + 2 * seed)):
            for task in made.TASKS:
                sha = {"model_sha256": f"{operator}-{model}"}
                made.task_record(folder / "tasks", task, operator, seed, wrong, **sha)


def test_several_pretrainings_are_what_is_counted(tmp_path):
    write_rounds(tmp_path, finetunings=5)
    statements = said(gather([tmp_path]))
    text = statements["Tasks"].text
    assert "over examples and over 3 pre-trainings (5 fine-tunings), corrected for all 3 comparisons" in text
    # Student's t with 2 degrees of freedom at 0.05 / 3, two-sided, is 7.65; over the root of 3
    assert "with 3 pre-trainings and 3 comparisons" in text
    assert "more than 4.4 times its standard deviation over pre-trainings" in text
    assert "pre-trained once" not in text
    assert "over fine-tunings of one pre-training" not in text


def test_the_primary_comparison_is_named_where_there_are_several_pretrainings(tmp_path, gathered):
    assert "Primary comparison" not in said(gathered)
    write_rounds(tmp_path)
    one = said(gather([tmp_path]))["Primary comparison"]
    assert "shared against standard on validation loss and on the mean score" in one.text
    assert "corrected for the two (Holm); all other comparisons are secondary" in one.text
    assert "Validation loss +0.313 nats [" in one.text  # 0.34, 0.3 and 0.3
    # 10 + seed more rows of 200: 6.25, 6.75 and 7.25 points as means of seeds 1 and 4, 2 and 5, 3 and 6
    assert "Mean score over 3 tasks −6.75 points [" in one.text
    assert "over 3 pre-trainings (6 fine-tunings): a difference is shown" in one.text
    assert one.leans == "standard"


def test_a_task_of_one_pretraining_among_others_is_said(tmp_path):
    write_rounds(tmp_path)
    for operator in ("standard", "shared"):
        for seed in (2, 3, 5, 6):
            (tmp_path / "tasks" / "sst2" / operator / f"seed-{seed}" / "record.json").unlink()
    text = said(gather([tmp_path]))["Tasks"].text
    assert "over 1 to 3 pre-trainings (2 to 6 fine-tunings)" in text
    assert "The test on SST-2 is over fine-tunings of one pre-training" in text


def test_noise_and_transfer_count_pretrainings_too(tmp_path):
    write_rounds(tmp_path, finetunings=4, pretrainings=2)
    for model, drop in (("standard", 30.0), ("shared", 10.0)):
        for seed in range(1, 5):
            made.noise_record(tmp_path / "noise", "mnli", model, seed, drop + seed)
            made.transfer_record(tmp_path / "transfer", "mnli", model, seed, {"mnli": 20 + seed, "mrpc": 60})
    found = gather([tmp_path])
    compared = [*found.comparisons, *found.noise_comparisons, *found.transfer_comparisons]
    assert {(one.pretrainings, one.seeds) for one in compared} == {(2, 4)}
    (levels,) = [table for section in sections(found) for table in section.tables if "Table 5" in table.title]
    # Drops of 31 to 34 points: seeds 1 and 3 of one pre-training, 2 and 4 of the other, so 32 and 33 with t = 12.71
    assert levels.rows[-1][1] == "57.45 ± 6.35"
    assert any("Seeds: 4, of pre-trainings: standard 2, shared 2." in note for note in levels.notes)


def test_means_are_of_the_seeds_that_both_have(tmp_path):
    write_rounds(tmp_path)
    for name in ("seed-2", "seed-3"):
        (tmp_path / "runs/shared" / name / "run.json").unlink()
    found = gather([tmp_path])
    text = said(found)["Pre-training loss"].text
    assert text.startswith("Validation loss 1.650 nats with shared, 1.310 with standard (+0.340).")
    assert "Of seed 1, the only one of both: no significance can be told." in text
    figure_2, table_1 = (section.tables[0] for section in sections(found)[:2])
    assert not [row for row in figure_2.rows if "mean" in row[0]]
    assert "here all have: 1." in figure_2.notes[-1]
    assert table_1.rows[0][2].startswith("88.25 ± ")  # 21 to 26 of 200 are wrong


def test_a_seed_that_one_model_lacks_is_in_no_mean_of_table_1(tmp_path):
    write_rounds(tmp_path)
    for seed in (3, 6):
        (tmp_path / f"tasks/mrpc/shared/seed-{seed}/record.json").unlink()
    (tmp_path / "runs/shared/seed-3/run.json").unlink()
    found = gather([tmp_path])
    figure_2, table_1 = (section.tables[0] for section in sections(found)[:2])
    rows = {row[0]: row for row in table_1.rows}
    assert rows["MRPC"][2].startswith("88.50 ± ")  # of seeds 1, 2, 4 and 5: 23 wrong
    assert rows["SST-2"][2].startswith("88.25 ± ")
    assert "over 4 or 6 fine-tuning seeds of up to 3 pre-trainings." in " ".join(table_1.notes)
    assert "On each task only seeds that all models have: 2 of single models are left out." in table_1.notes
    means = [row for row in figure_2.rows if "mean" in row[0]]
    assert [row[0] for row in means] == ["standard, mean of 2 seeds", "shared, mean of 2 seeds"]
    assert means[0][4].startswith("1.325 ± ")  # 1.31 and 1.34, without the 1.39 of seed 3


def test_studies_alone_find_the_pretraining_beside_their_models(tmp_path):
    write_rounds(tmp_path, finetunings=4, pretrainings=2)
    records = []
    for model in ("standard", "shared"):
        for seed in range(1, 5):
            made.noise_record(tmp_path / "noise", "mnli", model, seed, 10.0 + seed)
            record = json.loads((tmp_path / f"noise/mnli/{model}/seed-{seed}.json").read_text())
            records.append(record | {"model_path": str(tmp_path / f"tasks/mnli/{model}/seed-{seed}/model")})
    assert {(one.pretrainings, one.seeds) for one in noise_comparisons(records)} == {(2, 4)}
    moved = [record | {"model_path": "elsewhere/model"} for record in records]
    assert {(one.pretrainings, one.seeds) for one in noise_comparisons(moved)} == {(1, 4)}
