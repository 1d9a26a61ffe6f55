import json

import pytest

from tests.report import made
from triune.errors import TriuneError
from triune.evaluation.significance import holm
from triune.report.answer import MADE_UP, headline, short_answer, statements
from triune.report.answer_primary import primary_tables
from triune.report.gather import gather
from triune.report.noise import noise_comparisons
from triune.report.primary import primary
from triune.report.sections import sections
from triune.studies.reproduce import _report


def said(found):
    return {one.topic: one for one in statements(found)}


@pytest.mark.parametrize(
    ("better", "goes_on", "leans"),
    [
        (
            "standard",
            "−30.00 points. "
            "By task, separate weights are shown to do better on 4 of 4 tasks and shared weights on none; none is left",
            "standard",
        ),
        (
            "shared",
            "+30.00 points. "
            "By task, shared weights are shown to do better on 4 of 4 tasks and separate weights on none; none is left",
            "shared",
        ),
        (
            "none",
            "−0.33 points. "
            "By task, a difference between separate and shared weights is shown on none of 4 tasks, which does",
            "none",
        ),
    ],
)
def test_the_answer_is_what_the_tests_support(tmp_path, better, goes_on, leans):
    made.write_tasks(tmp_path, better)
    found = gather([tmp_path])
    once = "One pre-training of each is compared, so this is about two models and not yet about two kinds of attention."
    assert headline(found).startswith(f"{once} shared − standard (not tested): mean score over 4 tasks {goes_on}")
    tasks = said(found)["Tasks"]
    assert tasks.leans == leans
    assert "over 3 fine-tuning seeds, corrected for 4 (Holm)" in tasks.text
    assert "One pre-training of each: this is about these two pre-trained models" in tasks.text


def test_it_may_depend_on_the_task(tmp_path):
    for seed, wrong in zip(made.SEEDS, (20, 21, 22), strict=True):
        for task, ahead in (("mrpc", "standard"), ("sst2", "shared")):
            for model in ("standard", "shared"):
                made.task_record(tmp_path, task, model, seed, wrong if model == ahead else 80 + seed % 2)
    found = gather([tmp_path])
    assert "it depends: separate weights are shown to do better on 1 of 2 tasks, shared weights on 1" in headline(found)
    assert said(found)["Tasks"].leans == "both"
    assert "standard is shown to be better on 1 (MRPC), shared on 1 (SST-2); none is left" in said(found)["Tasks"].text


def test_one_task_and_another_model_of_the_same_operator(tmp_path):
    """The paper's figures stand beside the model that is called by its operator."""
    for seed in made.SEEDS:
        for label, operator in (("standard", "standard"), ("a control", "standard"), ("shared", "shared")):
            made.task_record(tmp_path, "mrpc", label, seed, 40 + seed, operator=operator)
    found = gather([tmp_path])
    text = said(found)["Tasks"].text
    assert text.startswith("On none of 1 task is a difference")
    (table, *_) = sections(found)[1].tables
    assert table.columns[2:] == ["standard", "standard, paper", "a control", "shared", "shared, paper"]
    notes = " ".join(table.notes)
    assert "corrected for the 1 comparison of shared against standard, and for the 1 others apart" in notes


def test_of_one_run_each_nothing_is_said_to_be_shown(tmp_path):
    made.write_tasks(tmp_path, "standard", seeds=(1,))
    found = gather([tmp_path])
    begins = "Not answered by these records. The scores of the two were not tested: one run of each."
    told = "shared − standard (not tested): mean score over 4 tasks −30.00 points."
    assert headline(found) == f"{begins} {told} {MADE_UP}"
    tasks = said(found)["Tasks"]
    assert tasks.text.startswith("4 tasks with scores of both: not tested: one run of each. The largest difference")
    assert "[" not in tasks.text  # nor has it an interval
    assert tasks.leans == "untested"
    assert "▼" not in sections(found)[1].tables[0].to_markdown().partition("\n\n")[0]


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
    assert "shown to be above standard: shared-signed" in statements["Ablations"].text


def test_who_starts_lower_and_loses_less_under_noise_is_named(tmp_path):
    made.write_tasks(tmp_path / "tasks")  # they say which pre-training is behind
    for model, drop in (("standard", 30.0), ("shared", 10.0)):
        for seed in made.SEEDS:
            made.noise_record(tmp_path, "mnli", model, seed, drop + seed * drop / 10)
    noise = said(gather([tmp_path]))["Noise"]
    assert (noise.leans, noise.share) == ("shared", "2 of 2")
    assert "starts lower" not in noise.text
    for seed in made.SEEDS:
        rewrite(tmp_path / f"mnli/shared/seed-{seed}.json", lambda record: record.update(clean=60.0))
    assert " On MNLI shared starts lower, and has less to lose." in said(gather([tmp_path]))["Noise"].text
    for seed in made.SEEDS:
        rewrite(tmp_path / f"mnli/standard/seed-{seed}.json", lambda record: record.update(clean=50.0))
    assert "starts lower" not in said(gather([tmp_path]))["Noise"].text


def test_a_made_up_world_is_named_in_the_first_sentence(tmp_path, gathered):
    assert headline(gathered).endswith("(the pocket benchmark): nothing follows for real text.")
    made.write_tasks(tmp_path)
    for path in tmp_path.rglob("record.json"):
        rewrite(path, lambda record: record.update(pocket=False))
    assert "made-up" not in headline(gather([tmp_path]))


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
    ("losses", "verdict", "leans", "headed"),
    [
        (
            {"standard": (1.30, 1.31, 1.32), "shared": (1.60, 1.62, 1.61)},
            "a difference is shown",
            "standard",
            "separate weights are shown to reach a lower validation loss (shared +0.300 nats, p < 0.001).",
        ),
        (
            {"standard": (1.60, 1.62, 1.61), "shared": (1.30, 1.31, 1.32)},
            "a difference is shown",
            "shared",
            "shared weights are shown to reach a lower validation loss (shared −0.300 nats, p < 0.001).",
        ),
        (
            {"standard": (1.30, 1.50, 1.40), "shared": (1.45, 1.38, 1.40)},
            "no difference is shown",
            "none",
            "no difference in validation loss is shown (shared +0.010 nats, p 1.000).",
        ),
    ],
)
def test_several_pre_trainings_are_tested(tmp_path, losses, verdict, leans, headed):
    for operator, values in losses.items():
        for seed, loss in enumerate(values, start=1):
            made.write_run(tmp_path / operator / f"seed-{seed}", operator, loss, seed)
    found = gather([tmp_path])
    primary, loss = (said(found)[topic] for topic in ("Primary comparison", "Pre-training loss"))
    assert f"over 3 pre-trainings: {verdict}" in primary.text
    assert primary.leans == leans
    assert "means of 3 seeds; tested above" in loss.text  # and has no verdict of its own
    assert headline(found) == f"In these runs {headed}"


@pytest.mark.parametrize(
    ("losses", "said_of_it"),
    [
        (
            {"standard": [1.3], "shared": [2.6]},
            "After 60 % of its tokens standard had reached the loss at which shared",
        ),
        (
            {"standard": [2.6], "shared": [1.3]},
            "After 60 % of its tokens shared had reached the loss at which standard",
        ),
        ({"standard": [1.3, 1.3], "shared": [2.6, 8.9]}, "After 20 to 60 % of its tokens standard had"),
        ({"standard": [1.3], "shared": [1.6]}, None),  # only at its end
        ({"standard": [1.3], "shared": [1.3]}, None),
        ({"standard": [1.3, 8.9], "shared": [8.9, 1.3]}, None),  # now the one, now the other
    ],
)
def test_how_soon_the_better_model_was_there_is_said(tmp_path, losses, said_of_it):
    """Validation losses of these runs are 7.6, 1.27 and 0 above their last after 20, 60 and 100 % of the tokens."""
    for operator, values in losses.items():
        for seed, loss in enumerate(values, start=1):
            made.write_run(tmp_path / operator / f"seed-{seed}", operator, loss, seed)
    text = said(gather([tmp_path]))["Pre-training loss"].text
    assert said_of_it in text if said_of_it else "of its tokens" not in text


@pytest.mark.parametrize(
    ("file", "change", "how"),
    [
        ("summary.json", lambda it: it.update(tokens=51_200), "after unlike numbers of tokens"),
        ("run.json", lambda it: it["data"].update({"valid.tokens.bin": "other"}), "of unlike texts"),
        ("run.json", lambda it: it["recipe"]["training"].update(evaluate_blocks=3), "of unlike texts"),
    ],
)
def test_losses_that_cannot_be_set_side_by_side_are_said_to_be_so(tmp_path, file, change, how):
    made.write_tasks(tmp_path / "tasks")
    for operator, loss in (("standard", 1.3), ("shared", 2.6)):
        made.write_run(tmp_path / operator, operator, loss)
    found = gather([tmp_path])
    assert "unlike" not in headline(found) + said(found)["Primary comparison"].text
    rewrite(tmp_path / "shared" / file, change)
    found = gather([tmp_path])
    text = said(found)["Pre-training loss"].text
    assert "of its tokens" not in text
    assert text.endswith(f" The two are {how}.")
    assert f"validation loss ({how}) +1.300 nats" in headline(found)
    assert f"Validation loss ({how}) +1.300 nats" in said(found)["Primary comparison"].text


def test_a_third_model_does_not_make_the_pair_unlike(tmp_path):
    for operator, loss in (("standard", 1.3), ("shared", 2.6), ("pairwise", 1.4)):
        made.write_run(tmp_path / operator, operator, loss)
    rewrite(tmp_path / "pairwise/summary.json", lambda summary: summary.update(tokens=51_200))
    statements = said(gather([tmp_path]))
    assert "Validation loss +1.300 nats" in statements["Primary comparison"].text
    assert "After 60 % of its tokens standard" in statements["Pre-training loss"].text


def test_the_start_of_two_curves_may_have_no_loss(tmp_path):
    for operator, loss in (("standard", 1.3), ("shared", 2.6)):
        made.write_run(tmp_path / operator, operator, loss)
        metrics = tmp_path / operator / "metrics.jsonl"
        metrics.write_text('{"step": 0, "tokens": 0, "validation_loss": null}\n' + metrics.read_text())
    assert "After 60 % of its tokens standard" in said(gather([tmp_path]))["Pre-training loss"].text


def test_equal_losses_have_one_sign(tmp_path):
    for operator in ("standard", "shared"):
        made.write_run(tmp_path / operator, operator, 1.3)
    statements = said(gather([tmp_path]))
    assert "(+0.000)" in statements["Pre-training loss"].text
    assert "Validation loss +0.000 nats" in statements["Primary comparison"].text


def test_pretrainings_of_different_seeds_are_no_pair(tmp_path):
    made.write_tasks(tmp_path / "tasks")
    for seed, (operator, loss) in enumerate((("standard", 1.3), ("shared", 2.6)), start=1):
        made.write_run(tmp_path / operator, operator, loss, seed)
    text = said(gather([tmp_path]))["Primary comparison"].text
    assert "Mean score over 4 tasks" in text
    assert text.endswith("The other one is not in these records for the same seeds of both.")


def test_one_more_pretraining_of_one_of_them_is_no_second_pair(tmp_path):
    made.write_tasks(tmp_path / "tasks")
    for operator, seed in (("standard", 1), ("shared", 1), ("shared", 2)):
        made.write_run(tmp_path / f"{operator}/seed-{seed}", operator, 1.3, seed)
    assert headline(gather([tmp_path])).startswith("One pre-training of each is compared, so this is about two models")


def test_where_it_is_not_known_what_models_are_of_no_mean_is_told(tmp_path):
    made.write_tasks(tmp_path)
    for path in tmp_path.rglob("record.json"):
        rewrite(path, lambda record: record.pop("model_sha256"))
    found = gather([tmp_path])
    assert primary(found) is None
    assert "not known" in headline(found)


def test_a_plan_of_one_pretraining_each_announces_no_test(tmp_path):
    write_rounds(tmp_path, finetunings=3, pretrainings=1)
    planned(tmp_path, pretraining_seeds=1, finetuning_seeds=4)
    text = said(gather([tmp_path]))["Primary comparison"].text
    assert "t tests" not in text
    assert "So far, not tested (18 of 24 planned fine-tunings): Validation loss" in text


def test_what_the_design_can_show_is_said(tmp_path):
    made.write_tasks(tmp_path, "none")
    text = said(gather([tmp_path]))["Tasks"].text
    assert "The largest difference (shared − standard) is M" in text
    assert "(interval not corrected), and is not shown." in text
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
    assert headline(gather([tmp_path])).startswith("Not answered by these records: they hold no scores of a standard")
    planned(tmp_path, pretraining_seeds=1, finetuning_seeds=1)
    there = "1 of 2 planned pre-trainings and 1 of 2 planned fine-tunings are there"
    assert headline(gather([tmp_path])) == f"Not answered yet: {there}, and the tests wait for all of them. {MADE_UP}"


def test_where_positions_have_no_weights_the_count_of_parameters_says_so(tmp_path):
    made.write_results(tmp_path)
    for position in ("rotary", "absolute"):
        for model in ("standard", "shared"):
            change = {"position": position}
            rewrite(
                tmp_path / f"runs/{model}/run.json", lambda run, change=change: run["recipe"]["model"].update(change)
            )
        text = said(gather([tmp_path]))["Parameters"].text
        assert ("Counted with BERT's learned positions;" in text) == (position == "rotary")


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


def write_rounds(folder, finetunings=6, pretrainings=3, lost=10.0, shared="shared"):
    """Shared is worse by about `lost` rows and 0.3 nats; fine-tuning seeds take turns at the pre-trained models."""
    for number in range(1, pretrainings + 1):
        for operator, loss in (("standard", 1.3), (shared, 1.6)):
            made.write_run(folder / "runs" / operator / f"seed-{number}", operator, loss + number**2 / 100, number)
    made.write_run(folder / "runs" / shared / "seed-1", shared, 1.65, 1)
    for seed in range(1, finetunings + 1):
        model = (seed - 1) % pretrainings + 1
        for operator, wrong in (("standard", 20 + seed), (shared, round(20 + lost) + 2 * seed)):
            for task in made.TASKS:
                sha = {"model_sha256": f"{operator}-{model}"}
                made.task_record(folder / "tasks", task, operator, seed, wrong, **sha)


def write_two_rounds_of_studies(folder):
    write_rounds(folder, finetunings=4, pretrainings=2)
    for model, drop in (("standard", 30.0), ("shared", 10.0)):
        for seed in range(1, 5):
            made.noise_record(folder / "noise", "mnli", model, seed, drop + seed)
            made.transfer_record(folder / "transfer", "mnli", model, seed, {"mnli": 20 + seed, "mrpc": 60})


def test_a_mean_whose_sign_hangs_on_one_task_is_said_to(tmp_path):
    write_rounds(tmp_path)
    hangs = "hangs on one task"
    assert hangs not in said(gather([tmp_path]))["Primary comparison"].text  # shared is worse on all
    for seed in range(1, 7):  # one task on which standard knows next to nothing
        sha = {"model_sha256": f"standard-{(seed - 1) % 3 + 1}"}
        made.task_record(tmp_path / "tasks", "mrpc", "standard", seed, 180 + seed, **sha)
    found = gather([tmp_path])
    # Of 200 rows shared has 10 + seed more wrong on two tasks, 6.75 points in the mean, and 146.5 fewer on the third.
    wanted = (
        "without MRPC (pocket) it is −6.75 points (by pre-training −6.25, −6.75, −7.25; seen afterwards, not tested)."
    )
    assert wanted in said(found)["Primary comparison"].text
    assert "Mean score over 3 tasks +19.92 points" in said(found)["Primary comparison"].text
    assert any(note.endswith(wanted) for note in primary_tables(found)[0].notes)


def test_several_pretrainings_are_what_is_counted(tmp_path):
    write_rounds(tmp_path, finetunings=5)
    statements = said(gather([tmp_path]))
    text = statements["Tasks"].text
    assert "over examples and over 3 pre-trainings (5 fine-tunings), corrected for 3 (Holm)" in text
    # Student's t with 2 degrees of freedom at 0.05 / 3, two-sided, is 7.65; over the root of 3
    assert "with 3 pre-trainings and 3 comparisons" in text
    assert "more than 4.4 times its standard deviation over pre-trainings" in text
    assert "pre-trained once" not in text
    assert "over fine-tunings of one pre-training" not in text


def test_the_primary_comparison_is_told_and_not_tested_for_one_pretraining_of_each(gathered):
    """Whoever reads only the headline must not miss the two measures because nothing can be tested on them."""
    loss, score = "alidation loss +0.300 nats", "ean score over 4 tasks −30.00 points"
    assert f". shared − standard (not tested): v{loss}, m{score}. By task, " in headline(gathered)
    one = said(gathered)["Primary comparison"]
    assert one.leans == "untested"
    begins = "Always made, whatever the records show: shared against standard on validation loss and on the mean score."
    over = "over one pre-training"
    told = f"V{loss}, {over}: not tested. M{score}, {over} (3 fine-tunings): not tested."
    each = "By fine-tuning −30.00, −30.50, −29.50."
    assert one.text == f"{begins} {told} {each}"
    assert each in primary_tables(gathered)[0].notes
    (table,) = primary_tables(gathered)
    assert table.rows == [["standard", "1.300", "", "89.50", ""], ["shared", "1.600", "+0.300", "59.50", "−30.00"]]
    assert f"Mean score over 4 tasks: {over} (3 fine-tunings), not tested." in table.notes
    assert not any(" p " in note or "±" in note for note in table.notes)


def test_where_fine_tunings_are_of_one_pretraining_only_the_loss_is_tested(tmp_path):
    write_rounds(tmp_path)
    for operator in ("standard", "shared"):
        for task in made.TASKS:
            for seed in (2, 3, 5, 6):
                (tmp_path / f"tasks/{task}/{operator}/seed-{seed}/record.json").unlink()
    found = gather([tmp_path])
    untested = "and a difference in mean score over 3 tasks is not tested (shared −6.25 points)"
    assert f"lower validation loss (shared +0.313 nats, p 0.004) {untested}" in headline(found)
    assert "By task, over fine-tunings of one pre-training of each, a difference" in headline(found)
    text = said(found)["Primary comparison"].text
    assert "t tests over pre-trainings, corrected for the two" in text
    assert "Mean score over 3 tasks −6.25 points, over one pre-training (2 fine-tunings): not tested." in text


def test_the_primary_comparison_is_named_where_there_are_several_pretrainings(tmp_path):
    write_rounds(tmp_path)
    one = said(gather([tmp_path]))["Primary comparison"]
    assert "shared against standard on validation loss and on the mean score" in one.text
    assert "corrected for the two (Holm; intervals are not); all other comparisons are secondary" in one.text
    assert "Validation loss +0.313 nats [" in one.text  # 0.34, 0.3 and 0.3
    # 10 + seed more rows of 200: 6.25, 6.75 and 7.25 points as means of seeds 1 and 4, 2 and 5, 3 and 6
    assert "Mean score over 3 tasks −6.75 points [" in one.text
    assert "over 3 pre-trainings (6 fine-tunings): a difference is shown" in one.text
    assert one.leans == "standard"


def test_another_operator_of_one_matrix_may_stand_for_shared_weights(tmp_path):
    write_rounds(tmp_path, shared="rolled")
    made.time_record(tmp_path / "time", "cola", 0.75, 0.9)
    rewrite(
        tmp_path / "time/cola.json", lambda record: record["contestants"][1].update(model="rolled", operator="rolled")
    )
    found = gather([tmp_path])
    assert "rolled against standard on validation loss" in said(found)["Primary comparison"].text
    assert "separate weights are shown to reach a lower validation loss (rolled +0.313 nats" in headline(found)
    assert "An epoch with rolled attention is 25.0 % shorter" in said(found)["Training time"].text
    write_rounds(tmp_path, shared="shared")
    found = gather([tmp_path])
    assert (
        "shared against standard on validation loss" in said(found)["Primary comparison"].text
    )  # the paper's comes first
    assert {one.family for one in found.comparisons} == {"shared against standard"}


def test_a_task_of_one_pretraining_among_others_is_said(tmp_path):
    write_rounds(tmp_path)
    for operator in ("standard", "shared"):
        for seed in (2, 3, 5, 6):
            (tmp_path / "tasks" / "sst2" / operator / f"seed-{seed}" / "record.json").unlink()
    text = said(gather([tmp_path]))["Tasks"].text
    assert "over 1 to 3 pre-trainings (2 to 6 fine-tunings)" in text
    assert "The test on SST-2 is over fine-tunings of one pre-training" in text


def test_noise_and_transfer_count_pretrainings_too(tmp_path):
    write_two_rounds_of_studies(tmp_path)
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
    assert rows["MRPC (pocket)"][2].startswith("88.50 ± ")  # of seeds 1, 2, 4 and 5: 23 wrong
    assert rows["SST-2 (pocket)"][2].startswith("88.25 ± ")
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
    assert {one.verdict for one in noise_comparisons(moved)} == {
        "not tested: it is not known which runs are of one pre-training"
    }


def test_records_of_a_study_alone_find_the_pretrainings_too(tmp_path):
    """Without the fine-tunings among the records, four fine-tunings of two pre-trainings would look like four runs."""
    write_rounds(tmp_path, finetunings=4, pretrainings=2)
    for model in ("standard", "shared"):
        for seed in range(1, 5):
            made.noise_record(tmp_path / "noise", "mnli", model, seed, 10.0 + seed)
            path = tmp_path / f"tasks/mnli/{model}/seed-{seed}/model"
            rewrite(
                tmp_path / f"noise/mnli/{model}/seed-{seed}.json",
                lambda one, path=path: one.update(model_path=str(path)),
            )
    both, alone = gather([tmp_path]).noise_comparisons, gather([tmp_path / "noise"]).noise_comparisons
    assert [(one.pretrainings, one.p_seeds, one.verdict) for one in alone] == [
        (one.pretrainings, one.p_seeds, one.verdict) for one in both
    ]


def planned(folder, **other):
    plan = {"study": "planned", "operators": ["standard", "shared"], "tasks": list(made.TASKS)}
    made.write(folder / "planned.json", plan | {"pretraining_seeds": 3, "finetuning_seeds": 6} | other)


def test_nothing_is_shown_before_all_that_was_planned_is_there(tmp_path):
    write_rounds(tmp_path)
    whole = headline(gather([tmp_path]))
    planned(tmp_path)
    assert headline(gather([tmp_path])) == whole
    assert whole.startswith(
        "In these runs separate weights are shown to reach a lower validation loss (shared +0.313 nats"
    )
    (tmp_path / "runs/shared/seed-3/run.json").unlink()
    for task in made.TASKS:
        for seed in (3, 6):
            (tmp_path / f"tasks/{task}/shared/seed-{seed}/record.json").unlink()
    found = gather([tmp_path])
    begins = "Not answered yet: 5 of 6 planned pre-trainings and 30 of 36 planned fine-tunings are there, and the tests"
    assert headline(found).startswith(begins)
    assert "Validation loss: shared +0.320 nats." in headline(found)
    statements = said(found)
    assert statements["Primary comparison"].leans == statements["Tasks"].leans == "untested"
    assert "So far, not tested yet (5 of 6 planned" in statements["Primary comparison"].text
    assert "not tested yet" in statements["Tasks"].text
    page = "".join(table.to_markdown() for section in sections(found) for table in section.tables)
    assert "▼ |" not in page
    assert "Differences from standard are not tested yet." in page
    assert "p, Holm" not in page + "".join(t.to_markdown() for section in sections(found) for t in section.folded)


def test_a_task_that_was_not_begun_is_not_waited_for_and_in_no_mean(tmp_path):
    write_rounds(tmp_path)
    planned(tmp_path, tasks=[*made.TASKS, "cola"])
    found = gather([tmp_path])
    assert found.waits_for is None
    assert "Mean score" not in said(found)["Primary comparison"].text  # that of the four that were named


def test_runs_that_diverged_are_counted_and_not_waited_for(tmp_path):
    write_rounds(tmp_path)
    planned(tmp_path)
    (tmp_path / "runs/shared/seed-3/summary.json").write_text('{"diverged": "the loss is nan", "identity": "x"}')
    for task in made.TASKS:
        for seed in (3, 6):
            (tmp_path / f"tasks/{task}/shared/seed-{seed}/record.json").unlink()
    made.write(tmp_path / "tasks/sst2/shared/seed-5/record.json", {"diverged": "the loss is nan", "identity": "x"})
    found = gather([tmp_path])
    assert found.waits_for is None
    text = said(found)["What was run"].text
    assert "Diverged, and so in no table and no test: 1 × pre-training of shared, 1 × fine-tuning of shared." in text


def test_a_task_that_is_only_reported_is_in_no_mean(tmp_path):
    write_rounds(tmp_path)
    before = said(gather([tmp_path]))["Primary comparison"].text
    for seed in range(1, 7):
        for operator in ("standard", "shared"):
            sha = {"model_sha256": f"{operator}-{(seed - 1) % 3 + 1}"}
            made.task_record(tmp_path / "tasks", "wnli", operator, seed, 100 + 20 * (operator == "shared"), **sha)
    found = gather([tmp_path])
    assert said(found)["Primary comparison"].text == before
    (measures,) = [table for table in sections(found)[1].tables if "two measures" in table.title]
    assert measures.rows[0][0] == "standard"
    assert measures.rows[1][2] == "+0.313"
    assert measures.rows[1][4] == "−6.75"
    assert measures.sources[1, 1] == tuple(f"runs/shared/seed-{seed}/summary.json" for seed in (1, 2, 3))
    assert len(measures.sources[1, 3]) == 18
    assert not any("wnli" in file for file in measures.sources[1, 3])


def test_all_studies_wait(tmp_path):
    write_two_rounds_of_studies(tmp_path)
    planned(tmp_path)
    found = gather([tmp_path])
    compared = [*found.comparisons, *found.noise_comparisons, *found.transfer_comparisons]
    assert {(one.verdict, one.p_seeds, one.interval, one.corrected_for) for one in compared} == {
        ("not tested yet", None, None, 0)
    }
    assert {said(found)[topic].leans for topic in ("Tasks", "Noise", "Other tasks")} == {"untested"}


def test_of_several_plans_each_waits_for_its_own(tmp_path):
    for name in ("one", "two"):
        write_rounds(tmp_path / name)
        planned(tmp_path / name)
        for task in (*made.TASKS, "runs"):
            folder = tmp_path / name / ("runs" if task == "runs" else f"tasks/{task}")
            for operator in ("standard", "shared"):
                (folder / operator).rename(folder / f"{operator}-{name}")
    for path in (tmp_path / "two").rglob("*.json"):
        path.write_text(path.read_text().replace('"standard"', '"standard-two"').replace('"shared"', '"shared-two"'))
    for path in (tmp_path / "one").rglob("*.json"):
        path.write_text(path.read_text().replace('"standard"', '"standard-one"').replace('"shared"', '"shared-one"'))
    assert gather([tmp_path]).waits_for is None
    (tmp_path / "two/runs/shared-two/seed-3/run.json").unlink()
    assert gather([tmp_path / "one"]).waits_for is None
    assert gather([tmp_path / "one", tmp_path / "two"]).waits_for == "5 of 6 planned pre-trainings"


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": None},
        {"tasks": "mnli"},
        {"tasks": [1]},
        {"operators": 5},
        {"pretraining_seeds": 0},
        {"pretraining_seeds": True},
        {"finetuning_seeds": 6.0},
        {"finetuning_seeds": 10**12},
        {"learning_rates": 0.1},
        {"learning_rates": ["0.1"]},
        {"study": "time"},
    ],
)
def test_a_damaged_plan_is_an_error(tmp_path, change):
    write_rounds(tmp_path)
    planned(tmp_path, **change)
    with pytest.raises(TriuneError, match=r"planned\.json") as caught:
        gather([tmp_path])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["{", "null", "[]", "{}"])
def test_a_plan_that_cannot_be_read_is_an_error(tmp_path, content):
    write_rounds(tmp_path)
    (tmp_path / "planned.json").write_text(content)
    with pytest.raises(TriuneError, match=r"planned\.json"):
        gather([tmp_path])


def test_a_variant_that_diverged_is_no_run_of_its_operator(tmp_path):
    write_rounds(tmp_path)
    planned(tmp_path)
    (tmp_path / "runs/shared/seed-3/run.json").unlink()
    made.write_run(tmp_path / "ablations/shared/seed-3", "shared", 1.5, 3)
    (tmp_path / "ablations/shared/seed-3/summary.json").write_text('{"diverged": "nan", "identity": "x"}')
    found = gather([tmp_path])
    assert found.waits_for == "5 of 6 planned pre-trainings"
    assert "Diverged" not in said(found)["What was run"].text


def test_an_operator_without_a_rate_is_not_waited_for(tmp_path):
    write_rounds(tmp_path)
    planned(tmp_path, operators=["standard", "shared", "pairwise"])
    assert gather([tmp_path]).waits_for == "6 of 9 planned pre-trainings and 36 of 54 planned fine-tunings"
    for rate in ("0.1", "0.2"):
        record = {"study": "rates", "operator": "pairwise", "learning_rate": float(rate), "diverged": "nan"}
        made.write(tmp_path / "rates/pairwise" / rate / "summary.json", record)
    assert gather([tmp_path]).waits_for is None


def test_the_primary_comparison_is_corrected_for_two_and_pools_all_models(tmp_path):
    write_rounds(tmp_path)
    first = primary(gather([tmp_path]))
    raw = [one.difference.p for one in first.measures]
    assert [one.p for one in first.measures] == holm(raw)
    assert max(one.p / one.difference.p for one in first.measures) == pytest.approx(2)
    for number, loss in enumerate((1.5, 1.9, 1.4), start=1):
        made.write_run(tmp_path / "runs/pairwise" / f"seed-{number}", "pairwise", loss, number)
    loss = primary(gather([tmp_path])).measures[0]
    assert loss.difference.freedom == 4
    assert list(loss.values) == ["standard", "pairwise", "shared"]
    for path in (tmp_path / "tasks").rglob("record.json"):
        path.unlink()
    (alone,) = primary(gather([tmp_path])).measures
    assert alone.p == pytest.approx(min(1, 2 * alone.difference.p))  # the other one may still come


def test_a_model_with_other_groups_takes_no_part_in_the_mean(tmp_path):
    write_rounds(tmp_path)
    for seed in range(1, 7):
        for task in made.TASKS:
            sha = {"model_sha256": f"pairwise-{seed}"}  # grouped by standard, as all are
            made.task_record(tmp_path / "tasks", task, "pairwise", seed, 30 + 7 * seed, **sha)
            sha = {"model_sha256": f"symmetric-{(seed - 1) // 2}"}  # by way of others one group
            made.task_record(tmp_path / "tasks", task, "symmetric", seed, 30 + 9 * seed, **sha)
    score = primary(gather([tmp_path])).measures[1]
    assert set(score.values) == {"standard", "shared", "pairwise"}


def test_a_task_with_one_run_among_others_is_named(tmp_path):
    write_rounds(tmp_path)
    for operator in ("standard", "shared"):
        for seed in range(2, 7):
            (tmp_path / f"tasks/mrpc/{operator}/seed-{seed}/record.json").unlink()
    text = said(gather([tmp_path]))["Tasks"].text
    assert "corrected for 2 (Holm)" in text
    assert "MRPC: not tested: one run of each." in text
    assert "over 3 pre-trainings (6 fine-tunings)" in text


def test_a_run_that_diverges_makes_the_page_anew(tmp_path):
    """It is in no record of a table, and decides what is waited for."""
    write_rounds(tmp_path)
    planned(tmp_path)
    run = tmp_path / "runs/shared/seed-3"
    summary = (run / "summary.json").read_text()
    (run / "summary.json").unlink()
    assert "5 of 6 planned pre-trainings" in _report(tmp_path)[1]
    (run / "summary.json").write_text('{"diverged": "the loss is nan", "identity": "x"}')
    assert "planned" not in _report(tmp_path)[1]
    (run / "summary.json").write_text(summary)
    assert "shared +0.313 nats" in _report(tmp_path)[1]
