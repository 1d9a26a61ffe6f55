"""Noise: what is added and where, the clean score, areas, records, the command, and its tables."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.samples import glue_arguments, own_arguments
from triune.benchmarks.paper import TABLE_5, TABLE_5_LEVELS, TABLE_5_NOTE
from triune.cells import run_cell
from triune.data import corruptions
from triune.data.corruptions import Draws, corrupt_texts, corrupted
from triune.data.encoded import encode_pairs
from triune.data.examples import ids_sha256
from triune.errors import TriuneError
from triune.evaluation import noise, perturbed, predicting
from triune.evaluation.finetuned import find_finetuned
from triune.evaluation.noise import KINDS, NoiseSettings, area_weights, noise_cells, noise_settings
from triune.evaluation.perturbed import Asked, at_embeddings, embedding_norm, under_corruption, under_noise
from triune.evaluation.predict import Predictor
from triune.report.noise import noise_comparisons, noise_tables
from triune.training.task_data import TaskData, load

FEW = {"levels": [0.0, 0.5, 2.0], "rates": [0.0, 0.5], "draws": 2}


@pytest.fixture(scope="module")
def tasks(samples, command, tmp_path_factory):
    """Two models, two seeds, on classes and on numbers."""
    out = tmp_path_factory.mktemp("noise") / "tasks"
    arguments = [*glue_arguments(samples, out, "training.epochs=8", task="rte,stsb"), "--seeds", "2", "--keep", "all"]
    result = command(*arguments, "--workers", "1")
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture(scope="module")
def own(samples, command, tmp_path_factory):
    """In bfloat16: its clean score must be that of bfloat16 too."""
    out = tmp_path_factory.mktemp("own") / "tasks"
    result = command(*own_arguments(samples, out, "training.precision=bfloat16", "training.epochs=4"))
    assert result.returncode == 0, result.stderr
    return out / "own"


def data(samples, task="rte"):
    return TaskData(task, str(samples.data))


def cells(samples, tasks, out, task="rte", models=("standard", "shared"), **settings):
    found = find_finetuned([str(tasks / task / model) for model in models])
    return noise_cells(found, data(samples, task), NoiseSettings(**{**FEW, **settings}), out)


@pytest.fixture(scope="module")
def records(samples, tasks, tmp_path_factory):
    out = tmp_path_factory.mktemp("records")
    measured = [run_cell(cell) for task in ("rte", "stsb") for cell in cells(samples, tasks, out, task)]
    for record in measured:
        path = out / record["task"] / record["model"] / f"seed-{record['seed']}.json"
        assert json.loads(path.read_text()) == record
    return measured


@pytest.fixture
def asked(samples, tasks):
    predictor = Predictor(str(tasks / "rte/shared/seed-1"), torch.device("cpu"))
    return Asked(predictor, "classification", half=False)


def development(samples, asked, task="rte"):
    dev = load(data(samples, task)).splits["dev"]
    return encode_pairs(asked.tokenizer, dev.first, dev.second, dev.labels, asked.longest)


def refused(result, *words):
    assert result.returncode == 2, result.stdout
    assert result.stderr.startswith("triune: error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert str(word) in result.stderr, result.stderr


def test_the_clean_score_is_the_one_that_fine_tuning_recorded(tasks, records):
    assert len(records) == 8
    for record in records:
        folder = tasks / record["task"] / record["model"] / f"seed-{record['seed']}"
        before = json.loads((folder / "record.json").read_text())
        assert record["clean"] == before["primary"]
        assert all(curve[0] == {"level": 0.0, "scores": [before["primary"]]} for curve in record["curves"].values())
        assert record["dev_rows"] == before["dev_rows"]
        assert record["dev_source"] == before["dev_source"]
        if record["task"] == "rte":
            dev = json.loads((folder / "dev.json").read_text())
            right = [int(a == b) for a, b in zip(dev["predictions"], dev["labels"], strict=True)]
            assert record["examples"]["clean"] == right
            assert record["examples"]["ids"] == ids_sha256(dev["ids"])


def test_a_model_is_asked_in_the_precision_of_its_fine_tuning(samples, tasks, own, tmp_path, monkeypatch):
    asked, plain = [], perturbed.predict_logits

    def predict_logits(*arguments):
        asked.append(arguments[-1])  # whether in half precision
        return plain(*arguments)

    monkeypatch.setattr(perturbed, "predict_logits", predict_logits)
    files = (str(samples.train), str(samples.dev), "text", None, "label", None)
    halves = noise_cells(find_finetuned([str(own)]), TaskData("own", None, files), NoiseSettings(**FEW), tmp_path)
    record = run_cell(halves[0])
    assert record["precision"] == "bfloat16"
    assert record["clean"] == json.loads((own / "shared/seed-1/record.json").read_text())["primary"]
    assert set(asked) == {True}
    asked.clear()
    assert run_cell(cells(samples, tasks, tmp_path)[0])["precision"] == "float32"
    assert set(asked) == {False}
    alone = tmp_path / "alone"
    shutil.copytree(own / "shared/seed-1/model", alone)  # nothing beside it says how it was made
    there = noise_cells(find_finetuned([str(alone)]), TaskData("own", None, files), NoiseSettings(**FEW), tmp_path)
    assert there[0].arguments["precision"] == "float32"
    assert there[0].identity != halves[0].identity


def test_records_hold_what_was_measured(records):
    for record in records:
        assert record["study"] == "noise"
        assert list(record["curves"]) == list(KINDS) == list(record["area"]) == list(record["retention"])
        for kind, curve in record["curves"].items():
            levels = FEW["levels"] if kind == "gaussian" else FEW["rates"]
            assert [point["level"] for point in curve] == levels
            assert [len(point["scores"]) for point in curve] == [1, *([2] * (len(levels) - 1))]
            means = [np.mean(point["scores"]) for point in curve]
            area = np.trapezoid(means, levels) / levels[-1]
            assert record["area"][kind] == pytest.approx(area)
            expected = 100 * area / record["clean"] if record["clean"] > 0 else None
            assert record["retention"][kind] == (expected if expected is None else pytest.approx(expected))
            if record["task"] == "rte":
                assert 100 * np.mean(record["examples"]["area"][kind]) == pytest.approx(area, abs=1e-3)
        assert (record["examples"] is None) == (record["task"] == "stsb")
        assert record["changed"]["casing"] == 0
        assert record["changed"]["typos"] > 0.5
        assert record["area"]["casing"] == pytest.approx(record["clean"])


def test_noise_is_felt(records):
    for record in records[4:]:  # numbers, in which every change shows
        for kind in ("gaussian", "typos", "dropped", "swapped", "masked"):
            scores = [score for point in record["curves"][kind][1:] for score in point["scores"]]
            assert len({record["clean"], *scores}) == len(scores) + 1


def test_corrupted_rows_are_answered_as_if_each_were_alone(samples, tasks):
    asked = Asked(Predictor(str(tasks / "stsb/shared/seed-1"), torch.device("cpu")), "regression", half=False)
    dev = load(data(samples, "stsb")).splits["dev"]
    clean = asked.answers(development(samples, asked, "stsb"), asked.longest)
    found = under_corruption(asked, clean, dev, Draws(("dropped", "masked", "swapped"), (0.2, 0.6), draws=2, seed=1))
    for number, rate in enumerate([0.2, 0.6]):
        for draw in range(2):
            for kind in ("dropped", "swapped"):
                sides = [corrupt_texts(kind, side, rate, 1, draw, n) for n, side in enumerate((dev.first, dev.second))]
                alone = encode_pairs(asked.tokenizer, *sides, None, asked.longest)
                expected = asked.answers(alone, asked.longest)
                assert found[kind][0][number, draw] == pytest.approx(expected, abs=1e-5)
    assert all(0 < share <= 1 for _, share in found.values())


def test_corrupted_rows_are_made_once_for_all_models(samples, tasks, tmp_path, monkeypatch):
    """And again for another rate, more draws, other text; what is read from the disk is what was made."""
    made = []
    monkeypatch.setattr(corruptions, "corrupted", lambda *given: made.append(given[3:]) or corrupted(*given))
    tokenizer = Predictor(str(tasks / "stsb/shared/seed-1"), torch.device("cpu")).tokenizer

    def kept(task="stsb", rates=(0.2, 0.6), draws=2):
        dev = load(data(samples, task)).splits["dev"]
        return corruptions.kept_corrupted(tmp_path, tokenizer, dev, 32, Draws(("dropped", "masked"), rates, draws, 1))

    first, second = kept(), kept()
    assert len(made) == 1
    assert all(np.array_equal(first.rows[kind], second.rows[kind]) for kind in ("dropped", "masked"))
    for name in ("ids", "starts", "first_lengths"):
        assert np.array_equal(getattr(first.fresh, name), getattr(second.fresh, name))
    assert np.array_equal(first.clean, second.clean)
    kept(rates=(0.2, 0.5))
    kept(draws=3)
    kept(task="rte")
    assert len(made) == 4
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".safetensors"] == []


@pytest.mark.parametrize("where", ["before", "after"])
def test_noise_has_the_norm_that_its_level_says(where, samples, asked):
    dev = development(samples, asked)
    embeddings = asked.model.bert.embeddings
    seen = []
    place = embeddings.LayerNorm if where == "before" else asked.model.bert.encoder.layer[0]
    handle = place.register_forward_hook(lambda module, given, output: seen.append(given[0].clone()))
    norm = embedding_norm(asked, dev, where)
    seen.clear()
    level, width = 0.3, asked.model.config.hidden_size
    under_noise(asked, dev, where, [0.0, level * norm / width**0.5], draws=40, seed=0)
    handle.remove()
    clean, noisy = zip(*(batch.chunk(2) for batch in seen), strict=True)
    tokens = [torch.cat([part.flatten(0, 1) for part in side]) for side in (clean, noisy)]
    assert tokens[0].norm(dim=-1).mean() == pytest.approx(norm, rel=1e-5)  # nothing is padded here
    added = (tokens[1] - tokens[0]).norm(dim=-1)
    assert (added**2).mean().sqrt() == pytest.approx(level * norm, rel=0.02)
    assert len(added) == 40 * len(dev.ids)


def test_sigma_follows_from_level_norm_and_width(samples, tasks, tmp_path, monkeypatch):
    seen = {}

    def under_noise(asked, dev, where, sigmas, draws, seed):
        seen.update(where=where, sigmas=sigmas, draws=draws, seed=seed)
        return np.zeros((len(sigmas), draws, len(dev)), dtype=np.int64)

    monkeypatch.setattr(noise, "under_noise", under_noise)
    chosen = {"kinds": ["gaussian"], "levels": [0.0, 0.1, 0.4], "where": "before", "seed": 7}
    record = run_cell(cells(samples, tasks, tmp_path, **chosen)[0])
    norm = record["embedding_norm"]
    assert seen["sigmas"] == pytest.approx([0.1 * norm / 4, 0.4 * norm / 4])  # the width is 16
    assert (seen["where"], seen["draws"], seen["seed"]) == ("before", 2, 7)
    predictor = Predictor(record["model_path"], torch.device("cpu"))
    asked = Asked(predictor, "classification", half=False)
    assert norm == pytest.approx(embedding_norm(asked, development(samples, asked), "before"), rel=1e-4)


def test_models_of_one_width_meet_the_same_noise(samples, tasks):
    added = []
    for model in ("standard/seed-1", "shared/seed-2"):
        asked = Asked(Predictor(str(tasks / "rte" / model), torch.device("cpu")), "classification", half=False)
        seen = []
        first_layer = asked.model.bert.encoder.layer[0]
        first_layer.register_forward_hook(lambda module, given, output, seen=seen: seen.append(given[0]))
        sigmas = [0.0, 0.5] if model == "standard/seed-1" else [0.0, 1.5]
        under_noise(asked, development(samples, asked), "after", sigmas, draws=2, seed=0)
        clean, noisy = zip(*(batch.chunk(2) for batch in seen), strict=True)
        added.append([(b - a) / sigmas[1] for a, b in zip(clean, noisy, strict=True)])
    for one, other in zip(*added, strict=True):
        assert torch.allclose(one, other, atol=1e-4)
        assert one.std() > 0.5


def test_the_mean_norm_leaves_padding_out(samples, asked):
    dev = development(samples, asked)
    assert len(set(dev.lengths)) > 1
    with torch.inference_mode():
        each = [
            asked.model.bert.embeddings(
                input_ids=torch.from_numpy(dev.row(row)).long()[None],
                token_type_ids=(torch.arange(length) >= int(dev.first_lengths[row])).long()[None],
            )
            for row, length in enumerate(dev.lengths)
        ]
    expected = torch.cat([one[0].norm(dim=-1) for one in each]).mean()
    assert embedding_norm(asked, dev, "after") == pytest.approx(float(expected), rel=1e-5)
    assert embedding_norm(asked, dev, "before") != pytest.approx(float(expected), rel=1e-2)


@pytest.mark.parametrize("where", ["before", "after"])
def test_draws_do_not_depend_on_batches_or_levels(where, samples, asked):
    dev = development(samples, asked)
    asked.kind, asked.answer_type = "regression", np.float32  # its first logit, in which every change shows
    together = under_noise(asked, dev, where, [0.1, 0.4], draws=2, seed=3)
    asked.at_once = 1
    assert under_noise(asked, dev, where, [0.1, 0.4], draws=2, seed=3) == pytest.approx(together, abs=1e-5)
    assert under_noise(asked, dev, where, [0.4], draws=2, seed=3)[0] == pytest.approx(together[1], abs=1e-5)
    assert under_noise(asked, dev, where, [0.4], draws=1, seed=3)[0, 0] == pytest.approx(together[1, 0], abs=1e-5)
    other = under_noise(asked, dev, where, [0.1, 0.4], draws=2, seed=4)
    for one in (other[1, 0], together[1, 1], together[0, 0]):  # another seed, another draw, another level
        assert np.abs(one - together[1, 0]).max() > 1e-3


def test_a_batch_that_is_cut_gets_its_own_noise(samples, asked, monkeypatch):
    """Where copies of a row are more than a batch holds, they are asked in several."""
    dev = development(samples, asked)
    asked.kind, asked.answer_type = "regression", np.float32
    together = under_noise(asked, dev, "after", [0.1, 0.4], draws=3, seed=0)
    monkeypatch.setitem(predicting.TOKENS_A_BATCH, "cpu", 40)
    assert under_noise(asked, dev, "after", [0.1, 0.4], draws=3, seed=0) == pytest.approx(together, abs=1e-5)


@pytest.mark.parametrize("where", ["before", "after"])
def test_hooks_are_gone_afterwards_also_on_error(where, samples, asked, monkeypatch):
    def hooks():
        modules = (asked.model.bert.embeddings, asked.model.bert.embeddings.LayerNorm)
        return [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in modules]

    dev = development(samples, asked)
    clean = asked.answers(dev, asked.longest)
    under_noise(asked, dev, where, [5.0], draws=1, seed=0)
    assert hooks() == [0, 0]
    assert np.array_equal(asked.answers(dev, asked.longest), clean)

    def broken(*ignored, **also):
        assert sum(hooks()) == 1
        raise RuntimeError("in the middle")

    monkeypatch.setattr(perturbed, "predict_logits", broken)
    with pytest.raises(RuntimeError, match="in the middle"):
        under_noise(asked, dev, where, [5.0], draws=1, seed=0)
    assert hooks() == [0, 0]


def test_nothing_is_changed_where_the_hook_gives_nothing(asked, samples):
    dev = development(samples, asked)
    clean = asked.answers(dev, asked.longest)
    for where in ("before", "after"):
        with at_embeddings(asked.model, where, lambda embeddings: None):
            assert np.array_equal(asked.answers(dev, asked.longest), clean)


def test_a_model_alone_gives_the_record_it_gives_among_others(samples, tasks, records, tmp_path):
    for cell in cells(samples, tasks, tmp_path, models=["shared"]):
        alone = run_cell(cell)
        among = next(one for one in records if (one["model"], one["seed"]) == ("shared", alone["seed"]))
        assert {**alone, "cell_seconds": 0} == {**among, "cell_seconds": 0}


def test_kinds_and_their_order(samples, tasks, tmp_path):
    record = run_cell(cells(samples, tasks, tmp_path, kinds=["masked", "gaussian"])[0])
    assert list(record["curves"]) == ["masked", "gaussian"]
    assert list(run_cell(cells(samples, tasks, tmp_path / "b", kinds=["gaussian"])[0])["curves"]) == ["gaussian"]


def test_cells_travel_and_know_what_they_are_of(samples, tasks, tmp_path):
    made = cells(samples, tasks, tmp_path)
    assert pickle.dumps(made)
    assert [cell.record.relative_to(tmp_path) for cell in made] == [
        Path(f"rte/{model}/seed-{seed}.json") for model in ("standard", "shared") for seed in (1, 2)
    ]
    assert len({cell.identity for cell in made}) == 4
    again = cells(samples, tasks, tmp_path / "elsewhere")
    assert [cell.identity for cell in again] == [cell.identity for cell in made]
    for change in ({"seed": 1}, {"where": "before"}, {"draws": 3}, {"kinds": ["typos"]}, {"rates": [0.0, 0.4]}):
        assert cells(samples, tasks, tmp_path, **change)[0].identity != made[0].identity


@pytest.mark.parametrize("levels", [[0.0, 1.0], [0.0, 0.1, 0.4], [0.0, 0.05, 0.2, 0.3, 3.0]])
def test_area_weights_are_those_of_trapezoids(levels):
    curve = np.random.default_rng(0).random(len(levels))
    assert area_weights(levels) @ curve == pytest.approx(np.trapezoid(curve, levels) / levels[-1])
    assert area_weights(levels).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"where": "inside"}, "where"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"draws": "3"}, "draws"),
        ({"levels": [0.1, 0.2]}, "levels must begin with 0"),
        ({"levels": [0.0]}, "levels must begin with 0"),
        ({"levels": [0.0, 0.2, 0.2]}, "rise"),
        ({"levels": [0.0, float("nan")]}, "rise"),
        ({"levels": [0.0, float("inf")]}, "rise"),
        ({"levels": [0.0, "a"]}, "rise"),
        ({"rates": []}, "rates must begin with 0"),
        ({"rates": [0.0, 1.5]}, "rates are shares up to 1"),
        ({"kinds": ["typo"]}, "did you mean 'typos'?"),
        ({"kinds": []}, "one or more of gaussian"),
        ({"kinds": ["typos", "typos"]}, "each once"),
        ({"seed": -1}, "seed at least 0"),
    ],
)
def test_wrong_settings_are_one_line(values, words):
    with pytest.raises(TriuneError) as caught:
        noise_settings(**values)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_are_the_papers_levels():
    assert NoiseSettings().levels == list(TABLE_5_LEVELS)
    assert (NoiseSettings().where, NoiseSettings().draws) == ("after", 3)


def arguments(samples, tasks, out, *more):
    data_dir = ["--data-dir", samples.data, "--out", out, "--workers", "1"]
    return ["noise", *tasks, *data_dir, "--draws", "2", "--levels", "200,50", "--rates", "50", *more]


def test_the_command(samples, tasks, records, command, tmp_path):
    given = arguments(samples, [tasks / "rte/standard", tasks / "rte/shared"], tmp_path, "--task", "rte")
    result = command(*given)
    assert result.returncode == 0, result.stderr
    for words in ("Noise on the embeddings (Table 5): RTE", "200 %", "area and retention", "masked tokens"):
        assert words in result.stdout
    assert f"written: 4 records under {tmp_path}" in result.stdout.replace("\n", "")
    assert result.stderr.count("kept under noise") == 4
    for record in records[:4]:
        path = tmp_path / "rte" / record["model"] / f"seed-{record['seed']}.json"
        assert {**json.loads(path.read_text()), "cell_seconds": 0} == {**record, "cell_seconds": 0}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    again = command(*given)
    assert again.stdout == result.stdout
    assert "4 of 4 finished already" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before
    refused(command(*given, "--where", "before"), "is of another recipe, model or data")


def test_one_seed_folder_several_tasks_and_labels(samples, tasks, command, tmp_path):
    models = [tasks / "rte/shared/seed-2", f"mine={tasks / 'rte/standard/seed-1/model'}", tasks / "stsb"]
    result = command(*arguments(samples, models, tmp_path, "--task", "rte,stsb", "--kinds", "gaussian,dropped"))
    assert result.returncode == 0, result.stderr
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))
    stsb = [f"stsb/{model}/seed-{seed}.json" for model in ("shared", "standard") for seed in (1, 2)]
    assert found == ["rte/mine/seed-1.json", "rte/shared/seed-2.json", *stsb]


def test_own_data(samples, own, command, tmp_path):
    files = ["--dev", samples.dev, "--text", "text", "--label", "label"]
    result = command("noise", own, *files, "--out", tmp_path, "--kinds", "typos", "--workers", "1")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "own/shared/seed-1.json").read_text())
    assert record["clean"] == json.loads((own / "shared/seed-1/record.json").read_text())["primary"]
    one_class = tmp_path / "good.csv"
    lines = samples.dev.read_text().splitlines()
    one_class.write_text("\n".join([lines[0], *(line for line in lines if line.endswith("good")), "x,worse"]))
    files[1] = one_class
    refused(command("noise", own, *files, "--out", tmp_path / "b"), "gives the classes bad, good", "good, worse")
    one_class.write_text("\n".join([lines[0], *(line for line in lines if line.endswith("good"))]))
    result = command("noise", own, *files, "--train", samples.train, "--out", tmp_path / "c", "--kinds", "typos")
    assert result.returncode == 0, result.stderr


def test_mistakes_are_one_line(samples, tasks, own, command, tmp_path):
    def call(*models, task="rte"):
        return command(*arguments(samples, models, tmp_path, *(["--task", task] if task else [])))

    refused(call(samples.shared), samples.shared, "task.json", "`triune finetune`")
    refused(call(tasks / "stsb/shared"), "no model that was fine-tuned on rte")
    refused(call(tasks / "rte", task="nothing"), "unknown task 'nothing'")
    refused(call(tasks / "rte", task=None), "--task", "--dev")
    refused(call(tmp_path / "nowhere"), "there is no model folder")
    refused(call(tasks / "rte/shared", tasks / "rte/shared/seed-1"), "would both be 'shared', seed 1")
    refused(command("noise", own, "--task", "rte", "--dev", samples.dev, "--out", tmp_path), "not both")
    refused(command("noise", own, "--dev", samples.dev, "--out", tmp_path), "--text and --label")
    files = ["--dev", samples.dev, "--text", "text", "--label", "label", "--data-dir", samples.data]
    refused(command("noise", own, *files, "--out", tmp_path), "--data-dir is for the tasks", "your own --dev, not both")
    refused(command("noise", own, "--task", "rte", "--text", "a", "--out", tmp_path), "give it as --dev")
    refused(command("noise", own, "--task", "rte", "--data-dir", tmp_path / "no", "--out", tmp_path), "not a folder")
    model = tasks / "rte/shared"
    refused(command(*arguments(samples, [model], tmp_path, "--task", "rte", "--levels", "a,b")), "--levels 'a,b'")
    refused(command(*arguments(samples, [model], tmp_path, "--task", "rte", "--rates", "120")), "up to 1 (100 %)")
    refused(command(*arguments(samples, [model], tmp_path, "--task", "rte", "--where", "x")), "where")
    assert not list(tmp_path.rglob("*.json"))


def test_models_that_do_not_fit_the_task(samples, tasks, tmp_path):
    found = find_finetuned([str(tasks / "rte/shared/seed-1")])
    with pytest.raises(TriuneError, match=r"SQuAD v1\.1 asks for answers in a text"):
        noise_cells(found, data(samples, "squad-v1.1"), NoiseSettings(), tmp_path)
    with pytest.raises(TriuneError, match="was fine-tuned on rte, not on qnli"):
        noise_cells(found, data(samples, "qnli"), NoiseSettings(), tmp_path)
    folder = tmp_path / "rte/other/seed-1/model"
    for task in ("mnli", "stsb"):  # as if someone had put another task's name beside the model
        shutil.copytree(found[0].path, folder, dirs_exist_ok=True)
        about = json.loads((folder / "task.json").read_text())
        (folder / "task.json").write_text(json.dumps({**about, "task": task}))
        with pytest.raises(TriuneError, match=r"gives the classes entailment, not_entailment, and .* asks for"):
            noise_cells(find_finetuned([str(folder)]), data(samples, task), NoiseSettings(), tmp_path)
    shutil.copytree(samples.shared, folder, dirs_exist_ok=True)  # a masked-LM model
    with pytest.raises(TriuneError, match="saved as TriuneForMaskedLM, which gives no classes"):
        noise_cells(find_finetuned([str(folder)]), data(samples, "stsb"), NoiseSettings(), tmp_path)


def made_up(model, seed, right, kept, task="sst2", **changes):
    """A record of one kind of noise at 0 and 40 %: `kept` are the examples' shares under the curve."""
    clean, area = 100 * np.mean(right), 100 * np.mean(kept)
    points = [{"level": 0.0, "scores": [clean]}, {"level": 0.4, "scores": [2 * area - clean - 1, 2 * area - clean + 1]}]
    settings = {"where": "after", "draws": 2, "levels": [0.0, 0.4], "rates": [0.0, 0.4], "kinds": ["gaussian"]}
    record = {
        "study": "noise",
        "task": task,
        "task_title": task.upper(),
        "metric_title": "accuracy",
        "model": model,
        "operator": model,
        "seed": seed,
        "dev_source": "somewhere",
        "dev_rows": len(right),
        "subset": False,
        "settings": {**settings, "seed": 0},
        "changed": {"gaussian": 1.0},
        "clean": clean,
        "curves": {"gaussian": points},
        "area": {"gaussian": area},
        "retention": {"gaussian": 100 * area / clean},
        "examples": {"ids": f"{len(right)} rows", "clean": right, "area": {"gaussian": kept}},
        "file": f"noise/{task}/{model}/seed-{seed}.json",
    }
    return record | changes


def study(better="shared"):
    """Both models lose; one loses much less, on most examples and in every seed, though it starts lower."""
    draw = np.random.default_rng(0)
    records = []
    for model in ("shared", "standard"):
        for seed in range(1, 5):
            right = (draw.random(300) < (0.7 if model == better else 0.9)).astype(int)
            loss = (0.05 if model == better else 0.4) + 0.02 * draw.random(300)
            records.append(made_up(model, seed, right.tolist(), (right * (1 - loss)).tolist()))
    return records


STARTED = {("sst2", model, seed): model for model in ("standard", "shared") for seed in range(1, 5)}


@pytest.mark.parametrize("better", ["shared", "standard"])
def test_who_loses_less_is_better(better):
    comparison = noise_comparisons(study(better), STARTED)[0]
    assert (comparison.a, comparison.b, comparison.better) == ("standard", "shared", better)
    assert (comparison.effect > 0) == (better == "shared")
    assert comparison.task == "SST2, Gaussian noise"
    loss = [
        np.mean([one["area"]["gaussian"] - one["clean"] for one in study(better) if one["model"] == model])
        for model in ("standard", "shared")
    ]
    assert comparison.effect == pytest.approx(loss[1] - loss[0])


def test_table_5_beside_the_papers():
    records = study()
    levels, summary, differences = noise_tables(records, started=STARTED)
    assert levels.columns == ["noise", "standard", "shared", "paper, standard", "paper, shared"]
    assert [row[0] for row in levels.rows] == ["0 %", "40 %"]
    assert [row[3:] for row in levels.rows] == [
        [f"{TABLE_5['sst2'][operator][place]:.2f}" for operator in ("standard", "shared")] for place in (0, -1)
    ]
    clean = [one["clean"] for one in records if one["model"] == "shared"]
    half = 3.182446305284263 * np.std(clean, ddof=1) / 2  # t of 3 degrees of freedom, four seeds
    assert levels.rows[0][2] == f"{np.mean(clean):.2f} ± {half:.2f}"
    assert any(TABLE_5_NOTE in note for note in levels.notes)
    assert any("after their LayerNorm" in note and "2 draws" in note for note in levels.notes)
    assert levels.sources[1, 1] == tuple(f"noise/sst2/standard/seed-{seed}.json" for seed in range(1, 5))
    assert (0, 3) not in levels.sources  # the paper's come from no record
    assert [row[:3] for row in summary.rows] == [["SST2", "Gaussian noise", m] for m in ("standard", "shared")]
    assert summary.sources[1, 5] == tuple(f"noise/sst2/shared/seed-{seed}.json" for seed in range(1, 5))
    assert "shared better" in differences.rows[0]
    assert len(differences.sources[0, 3]) == 8
    assert noise_tables([]) == []


def test_one_seed_has_no_interval():
    one = [record for record in study() if record["seed"] == 1]
    for table in noise_tables(one)[:2]:
        assert all("±" not in cell for row in table.rows for cell in row)
        assert any("one seed" in note.lower() for note in table.notes)
        assert not any("±" in note for note in table.notes)


def test_levels_that_the_paper_does_not_have():
    records = study()
    for record in records:
        record["curves"]["gaussian"][1]["level"] = 0.33
    levels = noise_tables(records)[0]
    assert [row[0] for row in levels.rows] == ["0 %", "33 %"]
    assert levels.rows[1][3:] == ["–", "–"]


def test_a_corruption_that_changed_nothing_is_not_tested():
    records = study()
    for record in records:
        for part in ("curves", "area", "retention"):
            record[part]["casing"] = copy.deepcopy(record[part]["gaussian"])
        record["examples"]["area"]["casing"] = [float(right) for right in record["examples"]["clean"]]
        record["changed"]["casing"] = 0.0
    assert [one.task for one in noise_comparisons(records)] == ["SST2, Gaussian noise"]
    summary = noise_tables(records)[1]
    assert any("uncased" in note and "changed casing on SST2" in note for note in summary.notes)
    records[0]["changed"]["casing"] = 0.1
    assert len(noise_comparisons(records)) == 2


def test_scores_that_are_no_means_over_examples_are_not_tested():
    cola = [{**record, "task": "cola", "task_title": "CoLA", "examples": None} for record in study()]
    assert noise_comparisons(cola) == []
    started = STARTED | {("cola", model, seed): model for _, model, seed in STARTED}
    tables = noise_tables([*study(), *cola], started=started)
    assert [table.title.split(":")[-1].strip() for table in tables[:2]] == ["SST2", "CoLA"]
    assert len(tables[-1].rows) == 1
    assert "Not tested: CoLA" in tables[-1].notes[-1]
    assert tables[1].columns == ["noise", "standard", "shared"]  # the paper has no noise on CoLA


def test_records_with_the_ids_themselves_are_taken_too():
    """As they were before records held a checksum."""
    records = study()
    before = noise_comparisons(records)
    for number, record in enumerate(records):
        ids = list(range(len(record["examples"]["clean"])))
        record["examples"]["ids"] = ids if number % 2 else ids_sha256(ids)
    assert noise_comparisons(records) == before


def test_what_cannot_be_paired_is_said():
    for change in ("settings", "ids"):
        records = study()
        if change == "settings":
            records[0]["settings"]["draws"] = 5
        else:
            records[0]["examples"]["ids"] = "others"
        with pytest.raises(TriuneError, match="different settings or development sets"):
            noise_comparisons(records)


def test_a_score_of_nothing_keeps_nothing():
    records = [made_up("shared", 1, [1, 0], [0.5, 0.0], clean=0.0, retention={"gaussian": None})]
    assert noise_tables(records)[1].rows[0][3:] == ["0.00", "25.00", "–"]


def test_labels_and_titles_are_text(capsys):
    from triune.commands.show import show

    records = [
        made_up("[bold]<script>", 1, [1, 0], [0.5, 0.0], task="own", task_title="[red]mine"),
    ]
    show(noise_tables(records))
    assert "[bold]<script>" in capsys.readouterr().out
