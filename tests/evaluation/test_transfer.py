"""Cross-task: which models are taken, how classes of one task stand for another's, what is kept, what tables say."""

import json
import pickle
import shutil

import pytest

from tests.samples import QUICK, write_csv
from triune.data.examples import ids_sha256
from triune.data.task_list import read_tasks
from triune.data.tasks import get_task, load_split, task_names
from triune.errors import TriuneError
from triune.evaluation.finetuned import find_finetuned
from triune.evaluation.predict import Predictor
from triune.evaluation.transfer import OwnFile, find_targets, transfer_cells
from triune.report.transfer import transfer_comparisons, transfer_tables
from triune.training.task_data import TaskData

TASKS = ["mnli", "qnli", "mrpc"]
# What the study must do, written down again: the class of each task that says that two texts agree.
AGREE = {"mnli": "entailment", "qnli": "entailment", "mrpc": "equivalent"}


@pytest.fixture(scope="module")
def tasks(samples, command, tmp_path_factory):
    """Both models on three tasks of pairs with two seeds, and on STS-B, which cannot take part."""
    out = tmp_path_factory.mktemp("transfer") / "tasks"
    sets = [part for value in [*QUICK, "training.epochs=3"] for part in ("--set", value)]
    models = [str(samples.standard), str(samples.shared)]
    common = ["--data-dir", samples.data, "--out", out, "--workers", "1", *sets]
    for names, seeds in (("mnli,qnli,mrpc", "2"), ("stsb", "1")):
        result = command("finetune", *models, "--task", names, "--seeds", seeds, "--keep", "all", *common)
        assert result.returncode == 0, result.stderr
    return out


@pytest.fixture(scope="module")
def transferred(tasks, samples, command):
    arguments = ["transfer", tasks, "--data-dir", samples.data, "--to", ",".join(TASKS), "--workers", "1"]
    arguments += ["--out", tasks.parent / "transfer"]
    result = command(*arguments)
    assert result.returncode == 0, result.stderr
    return tasks.parent / "transfer", arguments, result


def read(path):
    return json.loads(path.read_text())


def target_of(record, name, split="dev"):
    return next(one for one in record["targets"] if (one["target"], one["split"]) == (name, split))


def words_of(model, task, split, data):
    """The class that `triune predict` would give each row of another task's development set, and the row's own."""
    examples = load_split(get_task(task), split, data)
    pairs = zip(examples.first, examples.second, strict=True)
    rows = [(number, {"a": first, "b": second}) for number, (first, second) in enumerate(pairs)]
    answers = Predictor(str(model)).answers(rows, ["a", "b"])
    return [answer["label"] for answer in answers], [get_task(task).classes[label] for label in examples.labels]


# Which models


def test_every_way_to_name_models(tasks):
    one = tasks / "mnli/shared/seed-2"
    for path in (one, one / "model"):
        (found,) = find_finetuned([str(path)])
        assert (found.label, found.seed, found.task, found.path) == ("shared", 2, "mnli", str(one / "model"))
    assert [(one.label, one.seed) for one in find_finetuned([str(tasks / "mnli/shared")])] == [
        ("shared", 1),
        ("shared", 2),
    ]
    (named,) = find_finetuned([f"ours={one}"])
    assert named.label == "ours"
    everything = find_finetuned([str(tasks)])
    assert [(one.task, one.label, one.seed) for one in everything] == [
        *((task, label, seed) for task in sorted(TASKS) for label in ("standard", "shared") for seed in (1, 2)),
        ("stsb", "standard", 1),
        ("stsb", "shared", 1),
    ]
    assert find_finetuned([str(tasks.parent)]) == everything  # a results folder has them in tasks/
    assert {one.task for one in find_finetuned([str(tasks)], ["qnli", "mrpc"])} == {"qnli", "mrpc"}


def test_seeds_are_in_the_order_of_numbers(tasks, tmp_path):
    for seed in (10, 9):
        shutil.copytree(tasks / "qnli/shared/seed-1", tmp_path / f"many/seed-{seed}")
    assert [(one.label, one.seed) for one in find_finetuned([str(tmp_path / "many")])] == [("many", 9), ("many", 10)]


def test_a_model_outside_of_any_seed_is_called_by_its_operator(tasks, tmp_path):
    shutil.copytree(tasks / "qnli/shared/seed-2/model", tmp_path / "mine")
    (found,) = find_finetuned([str(tmp_path / "mine")])
    assert (found.label, found.seed, found.task) == ("shared", 1, "qnli")


def test_models_that_cannot_be_taken(tasks, samples, tmp_path):
    def refused(*given, wanted=None):
        with pytest.raises(TriuneError) as caught:
            find_finetuned([str(one) for one in given], wanted)
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    assert "has no task.json" in refused(samples.shared)
    assert "there is no model folder" in refused(tmp_path / "nowhere")
    assert "holds no fine-tuned model" in refused(tmp_path)
    assert "can name one only" in refused(f"ours={tasks / 'mnli'}")
    assert "cannot be called '.x'" in refused(f".x={tasks / 'mnli/shared'}")
    assert "no model that was fine-tuned on mnli" in refused(tasks / "qnli", wanted=["mnli"])
    twice = refused(f"same={tasks / 'mnli/shared/seed-1'}", f"same={tasks / 'mnli/standard/seed-1'}")
    assert "would both be 'same', seed 1, on mnli" in twice
    broken = shutil.copytree(tasks / "mnli/shared/seed-1/model", tmp_path / "broken")
    (broken / "task.json").write_text("[]")
    assert "cannot read the task" in refused(broken)


# Classes


def test_every_task_of_pairs_with_classes_says_which_one_means_agreement():
    agreements = {name: get_task(name).agreement for name in task_names()}
    assert {name: one for name, one in agreements.items() if one is not None} == {
        "mrpc": "equivalent",
        "qqp": "duplicate",
        **dict.fromkeys(["mnli", "qnli", "rte", "wnli"], "entailment"),
    }


@pytest.mark.parametrize("wrong", ["agreement: z, text: [a, c]", "agreement: x, text: [a]"])
def test_an_agreement_that_is_no_class_of_pairs_is_refused(wrong, tmp_path):
    fields = "title: A, kind: classification, label: b, metrics: [accuracy], primary: accuracy, classes: [x, y]"
    (tmp_path / "tasks.yaml").write_text(f"mine: {{{fields}, {wrong}}}")
    with pytest.raises(TriuneError, match=r"agreement '[zx]' must be a class of a task with two texts"):
        read_tasks(tmp_path / "tasks.yaml")


@pytest.mark.parametrize("source", TASKS)
def test_off_the_diagonal_two_classes_are_scored(source, transferred, tasks, samples):
    out, _, _ = transferred
    for label in ("standard", "shared"):
        record = read(out / source / label / "seed-2.json")
        model = tasks / source / label / "seed-2"
        for target in TASKS:
            if target == source:
                continue
            predicted, gold = words_of(model, target, "dev", samples.data)
            right = [(p == AGREE[source]) == (g == AGREE[target]) for p, g in zip(predicted, gold, strict=True)]
            found = target_of(record, target)
            assert found["right"] == [int(one) for one in right]
            assert found["score"] == pytest.approx(100 * sum(right) / len(right))
            positives = gold.count(AGREE[target])
            assert found["majority"] == pytest.approx(100 * max(positives, len(gold) - positives) / len(gold))
            assert len(found["classes"]) == 2
            assert found["classes"][0] == AGREE[target]
            assert (found["own_task"], found["out_of_domain"]) == (False, False)


def test_on_the_diagonal_the_score_is_that_of_the_fine_tuning(transferred, tasks):
    out, _, _ = transferred
    for source in TASKS:
        for seed in (1, 2):
            own = target_of(read(out / source / "shared" / f"seed-{seed}.json"), source)
            tuned = tasks / source / "shared" / f"seed-{seed}"
            assert own["score"] == pytest.approx(read(tuned / "record.json")["scores"]["accuracy"])
            dev = read(tuned / "dev.json")
            right = [int(p == g) for p, g in zip(dev["predictions"], dev["labels"], strict=True)]
            assert (own["right"], own["ids"]) == (right, ids_sha256(dev["ids"]))
            assert own["own_task"]
    assert target_of(read(out / "mnli/shared/seed-1.json"), "mnli")["majority"] == pytest.approx(100 / 3)


def test_mnli_mismatched_is_out_of_domain_and_scored_on_three_classes(transferred, tasks):
    out, _, _ = transferred
    found = target_of(read(out / "mnli/standard/seed-1.json"), "mnli", "dev_mismatched")
    assert (found["out_of_domain"], found["own_task"], found["rows"]) == (True, False, 9)
    assert found["title"] == "MNLI mismatched"
    tuned = read(tasks / "mnli/standard/seed-1/record.json")
    assert found["score"] == pytest.approx(tuned["more_scores"]["dev_mismatched"]["accuracy"])
    others = [target["split"] for target in read(out / "qnli/standard/seed-1.json")["targets"]]
    assert others == ["dev"] * 3  # another task's second development set says nothing more


def test_a_record_says_its_mapping(transferred):
    record = read(transferred[0] / "mnli/shared/seed-1.json")
    assert target_of(record, "mnli")["mapping"] == "The classes of MNLI: entailment, neutral, contradiction."
    assert target_of(record, "mrpc")["mapping"] == (
        "Two classes: entailment (against neutral and contradiction) in MNLI stands for equivalent (against "
        "not_equivalent) in MRPC."
    )
    assert target_of(read(transferred[0] / "qnli/shared/seed-1.json"), "mnli")["classes"] == ["entailment", "rest"]
    assert (record["study"], record["source"], record["model"], record["seed"]) == ("transfer", "mnli", "shared", 1)
    assert target_of(record, "qnli")["subset"]


# Records


def test_train_files_are_not_needed(tasks, samples, tmp_path):
    for name in TASKS:
        (tmp_path / "glue" / name).mkdir(parents=True)
        shutil.copy(samples.data / f"glue/{name}/dev.parquet", tmp_path / f"glue/{name}/dev.parquet")
    found = find_targets("mnli", [TaskData(name, str(tmp_path)) for name in TASKS])
    assert [(one.name, one.split) for one in found] == [(name, "dev") for name in TASKS]


def test_cells_travel_and_their_identity_is_of_weights_and_data(tasks, samples, tmp_path):
    models = find_finetuned([str(tasks / "mnli")])
    targets = [TaskData(name, str(samples.data)) for name in TASKS]
    cells = transfer_cells(models, targets, tmp_path)
    assert [str(cell.record.relative_to(tmp_path)) for cell in cells] == [
        f"mnli/{label}/seed-{seed}.json" for label in ("standard", "shared") for seed in (1, 2)
    ]
    assert len({cell.identity for cell in cells}) == 4
    for cell in cells:
        pickle.dumps(cell)  # it travels to other processes
    assert transfer_cells(models, targets[:2], tmp_path)[0].identity != cells[0].identity
    changed = shutil.copytree(samples.data, tmp_path / "data")
    shutil.copy(changed / "glue/qnli/train.parquet", changed / "glue/qnli/dev.parquet")
    others = [TaskData(name, str(changed)) for name in TASKS]
    assert transfer_cells(models, others, tmp_path)[0].identity != cells[0].identity


def test_what_is_finished_is_not_measured_again(transferred, command):
    out, arguments, first = transferred
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    assert len(before) == 12
    again = command(*arguments)
    assert again.returncode == 0
    assert "12 of 12 finished already" in again.stderr
    assert again.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json")} == before


def test_the_command_shows_matrices_and_differences(transferred):
    shown = transferred[2].stdout
    titles = ["Cross-task accuracy: standard", "Cross-task accuracy: shared", "Cross-task accuracy: shared − standard"]
    places = [shown.index(title + " ") for title in titles]
    assert places == sorted(places)
    assert "MNLI (subset)" in shown
    assert "MNLI mismatched" in shown
    assert "STS-B" not in shown


# A file of one's own


@pytest.fixture
def own(tmp_path):
    def write(*classes):
        rows = [["one cat", "cat", classes[0]], ["one dog", "song", classes[-1]], ["one book", "book", classes[0]]]
        return str(write_csv(tmp_path / "mine.csv", [["first", "second", "gold"], *rows]))

    return write


def own_target(source, path, agreement=None):
    return find_targets(source, [], OwnFile(path, "first", "second", "gold", agreement))[0]


def test_an_own_file_with_the_classes_of_the_model(own):
    target = own_target("mnli", own("entailment", "contradiction"))
    assert (target.agreement, target.out_of_domain, target.own_task) == (None, True, False)
    assert (target.title, len(target.examples)) == ("mine", 3)


def test_an_own_file_with_other_classes_is_reduced_to_two(own):
    assert own_target("mnli", own("duplicate", "no")).agreement == "duplicate"
    assert own_target("mnli", own("yes", "no"), "yes").agreement == "yes"
    assert own_target("mnli", own("entailment", "contradiction"), "entailment").agreement == "entailment"


def test_own_files_through_the_command(own, tasks, samples, command, tmp_path):
    def run(path, *more, label="gold"):
        model = tasks / "mnli/shared/seed-1"
        columns = ["--dev", path, "--text", "first", "--text2", "second", "--label", label]
        to = ["--to", "mnli", "--data-dir", samples.data, "--out", tmp_path / "out", "--workers", "1"]
        return command("transfer", model, *to, *columns, *more)

    for arguments, word in (
        ((own("yes", "no"),), "Give it as --positive; there are no, yes"),
        ((own("yes", "no"), "--positive", "yess"), "did you mean 'yes'?"),
        ((tmp_path / "none.csv", "--positive", "yes"), "none.csv"),
    ):
        result = run(*arguments)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert word in result.stderr
    result = run(own("yes", "no"), label="golden")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "did you mean 'gold'?" in result.stderr
    result = run(own("yes", "no"), "--positive", "yes")
    assert result.returncode == 0, result.stderr
    assert "yes (against no) in mine" in " ".join(result.stdout.split())
    record = read(tmp_path / "out/mnli/shared/seed-1.json")
    found = target_of(record, "own")
    rows = [(0, {"a": "one cat", "b": "cat"}), (1, {"a": "one dog", "b": "song"}), (2, {"a": "one book", "b": "book"})]
    answers = Predictor(str(tasks / "mnli/shared/seed-1")).answers(rows, ["a", "b"])
    agree = [answer["label"] == "entailment" for answer in answers]
    assert found["right"] == [int(one) for one in (agree[0], not agree[1], agree[2])]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--to", "sst2"], "SST-2 has no class that says that two texts agree: choose among mrpc"),
        (["--to", ","], "--to names no task"),
        (["--text", "a"], "give it as --dev"),
        (["--dev", "x.csv", "--text", "a", "--label", "b"], "needs all of --dev, --text, --text2 and --label"),
        (["--data-dir", "nowhere"], "is not a folder"),
    ],
)
def test_mistakes_of_the_command(more, word, tasks, samples, command, tmp_path):
    given = [] if "--data-dir" in more else ["--data-dir", samples.data]
    result = command("transfer", tasks, *given, "--out", tmp_path / "out", *more)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert word in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_of_another_task_cannot_take_part(tasks, samples, command, tmp_path):
    model = tasks / "stsb/shared/seed-1"
    result = command("transfer", model, "--data-dir", samples.data, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "holds no model that was fine-tuned on mnli, qnli, qqp, mrpc" in result.stderr


# Tables


def target(name, right, majority=60.0, **other):
    values = {"target": name, "split": "dev", "title": name.upper(), "out_of_domain": False, "own_task": False}
    values |= {"subset": False, "rows": len(right), "dev_source": "x", "mapping": f"as {name}", "majority": majority}
    return {**values, "ids": f"{len(right)} rows", "right": right, "score": 100 * sum(right) / len(right), **other}


def made(model, source, seed, right, **other):
    """The first `right` of 200 rows of MNLI and QNLI are right, and out of domain every second."""
    rows = [int(number < right) for number in range(200)]
    outside = target("mnli", [1, 0] * 100, split="dev_mismatched", title="MNLI mismatched", out_of_domain=True)
    targets = [
        target("qnli", rows, own_task=source == "qnli"),
        target("mnli", rows, 35.0 if source == "mnli" else 66.0, own_task=source == "mnli"),
        *([outside] if source == "mnli" else []),
    ]
    record = {"model": model, "operator": model, "source": source, "source_title": source.upper(), "seed": seed}
    return {**record, "targets": targets, "file": f"transfer/{source}/{model}/seed-{seed}.json", **other}


def records():
    """In every cell shared is 40 points above standard, in three seeds that differ by a little."""
    return [
        made(model, source, seed, right + 2 * seed)
        for source in ("qnli", "mnli")
        for model, right in (("shared", 160), ("standard", 80))
        for seed in (1, 2, 3)
    ]


STARTED = {
    (source, model, seed): model
    for source in ("qnli", "mnli")
    for model in ("standard", "shared")
    for seed in (1, 2, 3)
}


def test_tables_from_records():
    standard, shared, difference, outside = transfer_tables(records())
    assert standard.title == "Cross-task accuracy: standard"
    assert standard.columns == ["trained on", "MNLI", "QNLI"]  # the order of the paper's table
    assert standard.rows == [
        ["MNLI", "42.00 ± 1.00 (3)", "42.00 ± 1.00 (3)"],
        ["QNLI", "42.00 ± 1.00 (3)", "42.00 ± 1.00 (3)"],
        ["always the larger class", "66.00; 35.00 on the diagonal", "60.00"],
        ["MNLI, paper", "81.66", "72.24"],
        ["QNLI, paper", "77.99", "86.76"],
    ]
    assert shared.rows[0] == ["MNLI", "82.00 ± 1.00 (3)", "82.00 ± 1.00 (3)"]
    assert shared.rows[4] == ["QNLI, paper", "78.70", "89.02"]
    assert standard.sources[0, 2] == tuple(f"transfer/mnli/standard/seed-{seed}.json" for seed in (1, 2, 3))
    assert (2, 1) not in standard.sources
    assert difference.title == "Cross-task accuracy: shared − standard"
    assert len(difference.sources[1, 1]) == 6
    assert difference.rows[2:] == [["MNLI, paper", "−0.72", "+2.06"], ["QNLI, paper", "+0.71", "+2.26"]]
    assert outside.rows == [
        ["MNLI", "MNLI mismatched", "standard", "50.00 ± 0.00 (3)", "42.00 ± 1.00 (3)", "", "60.00"],
        ["MNLI", "MNLI mismatched", "shared", "50.00 ± 0.00 (3)", "82.00 ± 1.00 (3)", "0.00", "60.00"],
    ]
    assert outside.sources[1, 4] == tuple(f"transfer/mnli/shared/seed-{seed}.json" for seed in (1, 2, 3))
    assert "as mnli" in outside.notes
    assert sum("Table 6 contradicts" in note for table in (standard, shared, difference) for note in table.notes) == 1


def test_a_difference_is_marked_where_it_is_shown():
    rows = transfer_tables(records())[2].rows
    # Three seeds that differ by exactly the same are 0.25 by the sign test: nothing is shown.
    assert rows[0] == ["MNLI", "+40.00", "+40.00"]
    uneven = [
        made(one["model"], one["source"], one["seed"], 80 + (one["model"] == "shared") * (80 + 2 * one["seed"]))
        for one in records()
    ]
    comparisons = transfer_comparisons(uneven, STARTED)
    tables = transfer_tables(uneven, comparisons)
    assert tables[2].rows[0] == ["MNLI", "+42.00 †", "+42.00 †"]
    assert "corrected for 5 comparisons" in tables[2].notes[0]
    assert tables[3].rows[1][5] == "0.00"
    assert [(one.task, one.b) for one in comparisons if one.better == "shared"] == [
        (name, "shared") for name in ("MNLI → MNLI", "MNLI → QNLI", "QNLI → MNLI", "QNLI → QNLI")
    ]
    assert all(one.p_holm >= one.p for one in comparisons)
    # Where it is not known which pre-training each run is of, nothing is.
    assert transfer_tables(uneven)[2].rows[0] == ["MNLI", "+42.00", "+42.00"]


def test_models_without_a_common_seed_are_not_compared():
    first, second = made("standard", "mnli", 1, 100), made("shared", "mnli", 2, 120)
    tables = transfer_tables([first, second])
    assert tables[2].rows[0] == ["MNLI", "–", "–"]
    assert any("One seed" in note for note in tables[0].notes)


def test_other_labels_are_compared_with_the_first_and_have_no_paper():
    tables = transfer_tables([made("b", "mnli", 1, 100), made("a", "mnli", 1, 100)])
    assert [table.title for table in tables[:3]] == [
        "Cross-task accuracy: b",
        "Cross-task accuracy: a",
        "Cross-task accuracy: a − b",
    ]
    assert [row[0] for row in tables[0].rows] == ["MNLI", "always the larger class"]


def test_one_common_seed_is_said_where_models_are_compared():
    several = [made("standard", "mnli", seed, 100) for seed in (1, 2)]
    others = [made("shared", "mnli", seed, 120) for seed in (2, 3)]
    tables = transfer_tables([*several, *others])
    assert [any("One seed" in note for note in table.notes) for table in tables[:3]] == [False, False, True]


def test_records_with_the_ids_themselves_are_taken_too():
    """As they were before records held a checksum."""
    records = [made(model, "mnli", 1, right) for model, right in (("standard", 100), ("shared", 120))]
    before = transfer_comparisons(records)
    for record, ids in zip(records, (list(range(200)), ids_sha256(list(range(200)))), strict=True):
        for target in record["targets"]:
            target["ids"] = ids
    assert transfer_comparisons(records) == before


def test_different_development_sets_cannot_be_paired():
    shorter = made("shared", "mnli", 1, 100)
    shorter["targets"][0]["ids"] = "others"
    with pytest.raises(TriuneError, match="MNLI → QNLI: models were scored on different development sets"):
        transfer_tables([made("standard", "mnli", 1, 100), shorter])


def test_a_subset_is_called_one():
    record = made("standard", "mnli", 1, 100)
    record["targets"][0]["subset"] = True
    (table, _) = transfer_tables([record])
    assert table.columns == ["trained on", "MNLI", "QNLI (subset)"]
    assert any("QNLI: 200 rows from x." in note for note in table.notes)


def test_no_records_no_tables():
    assert transfer_tables([]) == []
