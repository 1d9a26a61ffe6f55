"""From records to comparisons: their order, and what cannot be compared."""

import json

import pytest

from triune.errors import TriuneError
from triune.evaluation.comparing import compare_records, read_records, write_scores


def write_run(out, task, model, seed, predictions=(0, 1, 1, 0), ids=None, kind="classification", **changes):
    folder = out / task / model / f"seed-{seed}"
    folder.mkdir(parents=True)
    metric = "f1" if kind == "span" else "accuracy"
    record = {"task": task, "task_title": task.upper(), "model": model, "seed": seed, "kind": kind, "metric": metric}
    record |= {"operator": model, "primary": 50.0, "recipe": {"training": {}}, "history": []}
    (folder / "record.json").write_text(json.dumps(record | changes))
    ids = list(range(len(predictions))) if ids is None else ids
    if kind == "span":
        dev = {"ids": ids, "exact": [float(one) for one in predictions], "f1": [float(one) for one in predictions]}
    else:
        dev = {"ids": ids, "labels": [0, 1, 0, 1], "predictions": list(predictions)}
    (folder / "dev.json").write_text(json.dumps(dev))
    return folder


def refused(call, *words):
    with pytest.raises(TriuneError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for word in words:
        assert str(word) in message, message


def test_records_come_in_the_order_of_the_papers_tables(tmp_path):
    for model in ("mine", "shared", "another", "symmetric", "standard", "pairwise"):
        for seed in (10, 2):
            write_run(tmp_path, "rte", model, seed)
    write_run(tmp_path, "cola", "shared", 1)
    (tmp_path / "rte/shared/search-0.1").mkdir()
    (tmp_path / "rte/shared/search-0.1/record.json").write_text("{}")
    found = [(one["task"], one["model"], one["seed"]) for one in read_records(tmp_path)]
    models = ["standard", "symmetric", "pairwise", "shared", "another", "mine"]
    assert found == [("cola", "shared", 1), *(("rte", model, seed) for model in models for seed in (2, 10))]


def test_a_folder_without_records(tmp_path):
    refused(lambda: read_records(tmp_path), tmp_path, "no records")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"task": "rte"}', b"\xff"])
def test_a_damaged_record_is_named(content, tmp_path):
    path = write_run(tmp_path, "rte", "shared", 1) / "record.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(lambda: read_records(tmp_path), path)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"ids": [0]}'])
def test_predictions_that_are_missing_or_damaged_are_named(content, tmp_path):
    write_run(tmp_path, "rte", "standard", 1)
    path = write_run(tmp_path, "rte", "shared", 1) / "dev.json"
    path.unlink() if content is None else path.write_text(content)
    refused(
        lambda: compare_records(tmp_path, read_records(tmp_path)), path, "remove it and run `triune finetune` again"
    )


def test_different_development_sets_cannot_be_paired(tmp_path):
    write_run(tmp_path, "rte", "standard", 1)
    write_run(tmp_path, "rte", "shared", 1, ids=[0, 1, 2, 4])
    refused(lambda: compare_records(tmp_path, read_records(tmp_path)), "RTE", "different development sets")


def test_what_is_no_folder_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    for name, said in (("nowhere", "does not exist"), ("file", "is a file")):
        with pytest.raises(TriuneError, match=f"'{tmp_path / name}' {said}: give the folder that was the --out of"):
            read_records(tmp_path / name)


def test_one_model_has_nothing_to_be_compared_with(tmp_path):
    write_run(tmp_path, "rte", "shared", 1)
    assert compare_records(tmp_path, read_records(tmp_path)) == []


def test_models_are_compared_on_the_seeds_that_both_have(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path, "rte", "standard", seed)
    for seed in (2, 3, 4):
        write_run(tmp_path, "rte", "shared", seed)
    write_run(tmp_path, "cola", "shared", 1)  # the other one has no run of it
    (comparison,) = compare_records(tmp_path, read_records(tmp_path))
    assert (comparison.task, comparison.a, comparison.b) == ("RTE", "standard", "shared")
    assert comparison.to_dict()["seeds"] == 2


def test_the_difference_is_that_of_the_scores(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path, "rte", "standard", seed, predictions=(0, 0, 0, 0))  # right twice
        write_run(tmp_path, "rte", "shared", seed, predictions=(0, 1, 0, 0))  # right three times
        write_run(tmp_path, "squad", "standard", seed, predictions=(1, 0.5, 0, 0), kind="span")
        write_run(tmp_path, "squad", "shared", seed, predictions=(0.5, 0, 0, 0), kind="span")
    rte, squad = compare_records(tmp_path, read_records(tmp_path))
    assert rte.effect == pytest.approx(25)
    assert squad.effect == pytest.approx(-25)
    swapped, _ = compare_records(tmp_path, read_records(tmp_path), reference="shared")
    assert (swapped.a, swapped.b) == ("shared", "standard")
    assert swapped.effect == pytest.approx(-25)


def test_an_unknown_reference_names_the_models(tmp_path):
    write_run(tmp_path, "rte", "shared", 1)
    refused(lambda: compare_records(tmp_path, read_records(tmp_path), "standard"), "'standard'", "there are shared")


def test_scores_hold_the_records_without_their_recipes(tmp_path):
    write_run(tmp_path, "rte", "standard", 1)
    write_run(tmp_path, "rte", "shared", 1)
    records = read_records(tmp_path)
    comparisons = compare_records(tmp_path, records)
    written = json.loads(write_scores(tmp_path, records, comparisons).read_text())
    assert [one["folder"] for one in written["records"]] == ["rte/standard/seed-1", "rte/shared/seed-1"]
    assert not {"recipe", "history"} & set(written["records"][0])
    assert written["comparisons"] == [comparisons[0].to_dict()]


def test_the_command_shows_what_a_folder_holds(samples, command, tmp_path):
    from tests.samples import glue_arguments

    made = command(*glue_arguments(samples, tmp_path / "out"), "--workers", "1", "--keep", "none")
    assert made.returncode == 0, made.stderr
    assert command("compare", tmp_path / "out").stdout == made.stdout
    other = command("compare", tmp_path / "out", "--reference", "shared")
    assert "shared, standard" in other.stdout
    missing = command("compare", tmp_path / "out", "--reference", "mine")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_shared_against_standard_is_corrected_apart(tmp_path):
    for model in ("standard", "pairwise", "symmetric", "shared"):
        for seed in (1, 2):
            write_run(tmp_path, "rte", model, seed, model_sha256=model)
    found = compare_records(tmp_path, read_records(tmp_path))
    assert [(one.b, one.family, one.corrected_for) for one in found] == [
        ("symmetric", "others", 2),
        ("pairwise", "others", 2),
        ("shared", "shared against standard", 1),
    ]
    assert not any("not tested" in one.verdict for one in found)


def test_records_that_do_not_say_what_they_started_from_are_not_tested(tmp_path):
    for model in ("standard", "shared"):
        for seed in (1, 2):
            write_run(tmp_path, "rte", model, seed)
    (found,) = compare_records(tmp_path, read_records(tmp_path))
    assert found.verdict.startswith("not tested: it is not known")
