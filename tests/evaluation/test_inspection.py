"""Looking inside models: role vectors and their start, the form of the scores, attention over text, tables, figures."""

import json
import math
import pickle
import shutil
from itertools import permutations

import pytest
import torch
from torch import nn

from tests.samples import GOOD, THINGS
from triune import TriuneError, TriuneForMaskedLM, TriuneForSequenceClassification, operators
from triune.cells import finished
from triune.data.tokenizer import load_tokenizer
from triune.evaluation.attention_maps import attention_maps, open_model
from triune.evaluation.inspection import (
    inspect_cell,
    inspect_model,
    inspect_texts,
    operators_of,
    score_scales,
    score_symmetry,
)
from triune.operators import AttentionShape, NoSettings, Operator, Roles
from triune.report.inspection import head_table, inspect_tables
from triune.report.shapes import wrong_form
from triune.testing import small_config

TEXTS = ["the cat was good", "the river was fine indeed indeed indeed", "bread"]
SIGNED = {"role_start": "signed"}
ONES = {"role_start": "ones"}


@pytest.fixture
def make(samples, tmp_path):
    """Saves a small model with the samples' tokenizer; `change` is called with the model first."""

    def build(operator="shared", change=None, folder="model", head=TriuneForMaskedLM, **overrides):
        tokenizer = load_tokenizer(samples.tokenizer)
        torch.manual_seed(0)
        model = head(small_config(operator, vocab_size=len(tokenizer), max_position_embeddings=16, **overrides))
        with torch.no_grad():
            if change is not None:
                change(model)
        model.save_pretrained(tmp_path / folder)
        tokenizer.save_pretrained(tmp_path / folder)
        return tmp_path / folder

    return build


def flip(count, role="query"):
    """Turns the first entries of a role vector of layer 1."""

    def change(model):
        getattr(operators_of(model)[1], f"{role}_scale")[:count] *= -1

    return change


def zero_scores(model):
    """All scores alike: every visible token gets the same weight."""
    for operator in operators_of(model):
        for linear in operator.modules():
            if isinstance(linear, nn.Linear):
                linear.weight.zero_()
                linear.bias.zero_()


def built(operator, width=64, heads=2, settings=None):
    torch.manual_seed(0)
    made = operators.build(operator, AttentionShape(width, heads), settings)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


# Role vectors.


def test_signs_and_spectrum_of_c(make):
    def change(model):
        one = operators_of(model)[0]  # width 32, 4 heads of 8
        one.query_scale.fill_(2.0)
        one.key_scale.fill_(0.5)
        one.key_scale[:4] = -1.5

    record = inspect_model("mine", make(operator_settings=ONES, change=change), TEXTS, "made up")
    first, second = record["layers"]
    assert first["score_scale"]["sorted"] == [-3.0] * 4 + [1.0] * 28
    assert first["score_scale"]["negative_share"] == 4 / 32
    assert first["score_scale"]["repels"] == pytest.approx(12 / 40)
    assert first["score_scale"]["attracts"] == pytest.approx(28 / 40)
    assert [head["negative_share"] for head in first["heads"]] == [0.5, 0, 0, 0]
    assert first["sign_changes"] == {"query": 0, "key": 4 / 32, "value": 0}
    assert first["distance"]["query"] == pytest.approx(1.0)
    assert first["distance"]["key"] == pytest.approx(math.sqrt((4 * 2.5**2 + 28 * 0.5**2) / 32))
    assert second["distance"] == {"query": 0, "key": 0, "value": 0}
    assert record["start"] == "nominal"


def test_of_a_nominal_random_start_sizes_are_known_and_signs_are_not(make):
    layers = inspect_model("x", make(operator_settings=SIGNED, change=flip(5)), TEXTS, "")["layers"]
    for layer in layers:
        assert layer["distance"] == {"query": 0, "key": 0, "value": 0}
        assert layer["sign_changes"] == {"query": None, "key": 0, "value": 0}
        assert 0 < layer["score_scale"]["negative_share"] < 1


def test_of_halves_all_is_known_but_the_signs_of_dq(make):
    def change(model):
        one = operators_of(model)[1]
        one.query_scale += one.query_scale.sign()  # by one away from zero, on half of the dimensions
        one.value_scale -= 1.0

    record = inspect_model("x", make(change=change), TEXTS, "")  # the default
    first, second = record["layers"]
    assert record["start"] == "nominal"
    assert first["distance"] == {"query": 0, "key": 0, "value": 0}
    assert first["sign_changes"] == {"query": None, "key": 0, "value": 0}
    assert second["distance"] == {"query": pytest.approx(math.sqrt(0.5)), "key": 0, "value": pytest.approx(1.0)}


def test_a_start_of_which_only_the_draw_is_known(make):
    record = inspect_model("x", make(operator_settings={"role_start": "product"}), TEXTS, "")
    assert record["start"] is None
    assert all(layer["distance"] is layer["sign_changes"] is None for layer in record["layers"])


@pytest.mark.parametrize(
    ("settings", "has_c", "moved"),
    [
        ({"role_vectors": "joint", **ONES}, True, {"query", "value"}),
        ({"role_vectors": "value"}, False, {"value"}),
        ({"role_vectors": "none"}, False, set()),
        ({"score_sign": "positive"}, True, {"query", "key", "value"}),
    ],
)
def test_other_sets_of_role_vectors(settings, has_c, moved, make):
    role = "query" if has_c else "value"
    change = flip(3, role) if moved else None
    record = inspect_model("x", make(operator_settings=settings, change=change), TEXTS, "")
    layer = record["layers"][1]
    assert (layer["score_scale"] is not None) == has_c
    if has_c:
        repels = 0 if settings.get("score_sign") == "positive" else 3 / 32
        assert layer["score_scale"]["negative_share"] == repels
    if moved:
        assert {role for role, value in layer["distance"].items() if value is not None} == moved
        assert layer["sign_changes"][role] == 3 / 32
        assert record["start"] == "nominal"
    else:
        assert layer["distance"] is layer["sign_changes"] is record["start"] is None
    inspect_tables([record])


@pytest.mark.parametrize(
    "settings", [ONES, SIGNED, None, {"role_start": "product"}, {"role_vectors": "none"}, {"role_vectors": "value"}]
)
@pytest.mark.parametrize("texts", [TEXTS, ["one two"]])  # in the second no token stands twice
def test_the_page_takes_what_was_seen(settings, texts, make):
    record = inspect_model("x", make(operator_settings=settings), texts, "made up")
    assert wrong_form("inspect", json.loads(json.dumps(record))) is None


def test_a_folded_model_has_c_and_no_distance(make, tmp_path):
    source = make(change=flip(5))
    unfolded = inspect_model("x", source, TEXTS, "")
    folded = TriuneForMaskedLM.from_pretrained(source).fold()
    shutil.copytree(source, tmp_path / "folded")
    folded.save_pretrained(tmp_path / "folded")
    record = inspect_model("x", tmp_path / "folded", TEXTS, "")
    assert record["start"] is None
    for one, other in zip(record["layers"], unfolded["layers"], strict=True):
        assert one["distance"] is one["sign_changes"] is None
        assert one["score_scale"]["sorted"] == pytest.approx(other["score_scale"]["sorted"], abs=1e-5)
        assert one["score_symmetry"] == pytest.approx(other["score_symmetry"])
        assert one["heads"][0]["own"] == pytest.approx(other["heads"][0]["own"], abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "bound"), [(ONES, True), (SIGNED, True), ({"role_vectors": "joint", **ONES}, False)]
)
def test_c_cannot_change_its_sign_where_dq_and_dk_start_at_one_size(settings, bound):
    """Whatever the loss asks for: here every score of a token with itself the other way round."""
    made = built("shared", settings=settings)
    with torch.no_grad():
        made.initialize(0.02)
    start = score_scales(made)
    vectors = [getattr(made, name) for name in made.settings.vectors if name != "value_scale"]
    optimizer = torch.optim.AdamW(vectors, lr=0.1)
    hidden = torch.randn(1, 9, 64)
    wanted = start.sign().float()[None, :, None, :]
    for _ in range(40):
        roles = made(hidden, lambda x: x)
        (roles.query_BNTD * roles.key_BNTD * wanted).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    changed = (score_scales(made) * start < 0).double().mean()
    assert changed == (0 if bound else 1)
    if bound:
        assert torch.equal(made.query_scale.abs(), made.key_scale.abs())
        assert float(made.query_scale.detach().abs().max()) < 0.5  # it did go as far as it could


# The start of a run.


@pytest.fixture(scope="module")
def run(samples, tmp_path_factory):
    """A run of three steps with a rate so low that float32 weights do not move at all, from random signs."""
    from triune.data.prepare import prepare
    from triune.training.pretrain import pretrain
    from triune.training.recipe import load_recipe

    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("\n\n".join(f"the {thing} was {word}" for thing in THINGS * 9 for word in GOOD))
    prepare(folder / "text.txt", samples.tokenizer, folder / "blocks", 16, valid_fraction=0.1, workers=1)
    small = ["model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "data.block_length=16"]
    short = ["training.sequences=8", "training.steps=3", "training.evaluate_blocks=8", "training.seed=5"]
    start = ["model.operator_settings={role_start: signed}", "optimizer.learning_rate=1e-30"]
    pretrain(load_recipe("pocket", [*small, *short, *start]), folder / "blocks", folder / "shared")
    return folder / "shared"


def test_the_start_of_a_run_is_made_again(run, tmp_path):
    record = inspect_model("x", run, TEXTS, "")
    assert record["start"] == "exact"
    for layer in record["layers"]:
        assert layer["distance"] == {"query": 0, "key": 0, "value": 0}
        assert layer["sign_changes"] == {"query": 0, "key": 0, "value": 0}
        assert 0 < layer["score_scale"]["negative_share"] < 1  # the signs are random, and the same ones

    moved = shutil.copytree(run, tmp_path / "moved")
    model = TriuneForMaskedLM.from_pretrained(moved / "model")
    with torch.no_grad():
        flip(4)(model)
    model.save_pretrained(moved / "model")
    layer = inspect_model("x", moved, TEXTS, "")["layers"][1]
    assert layer["sign_changes"] == {"query": 4 / 16, "key": 0, "value": 0}
    assert layer["distance"]["query"] == pytest.approx(math.sqrt(4 * 2**2 / 16))

    described = json.loads((moved / "run.json").read_text())
    described["recipe"]["training"]["seed"] = 6
    (moved / "run.json").write_text(json.dumps(described))
    assert inspect_model("x", moved, TEXTS, "")["layers"][0]["sign_changes"]["query"] > 0.1

    alone = shutil.copytree(run / "model", tmp_path / "alone")
    assert inspect_model("x", alone, TEXTS, "")["start"] == "nominal"


def test_random_states_are_left_alone(run):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    inspect_model("x", run, TEXTS, "")
    assert torch.equal(torch.rand(3), expected)


# The form of the scores.


@pytest.mark.parametrize("operator", operators.names())
def test_symmetry_of_the_scores(operator):
    share = score_symmetry(built(operator))
    if operators.get(operator).symmetric_scores:
        assert share == pytest.approx(1, abs=1e-12)
    else:
        assert 0.4 < share < 0.6


@torch.no_grad()
def test_symmetry_is_that_of_the_form_written_out():
    made = built("standard", width=12, heads=3)
    shares = []
    for head in range(3):
        rows = slice(4 * head, 4 * head + 4)
        form = made.query.weight[rows].double().T @ made.key.weight[rows].double()
        shares.append(((form + form.T) / 2).square().sum() / form.square().sum())
    assert score_symmetry(made) == pytest.approx(float(sum(shares) / 3), abs=1e-12)


class Odd(Operator):
    """Not registered: queries that are not affine in X, or none at all."""

    factor = 1.0

    def __init__(self):
        super().__init__(AttentionShape(8, 2), NoSettings())
        self.shared = self.projection()

    def forward(self, hidden_BTd, rotate):
        shared = self.split_heads(self.shared(hidden_BTd))
        return Roles(self.factor * shared.relu(), shared, shared, 1.0)


def test_symmetry_of_what_is_no_form_is_not_told():
    odd = Odd()
    assert score_symmetry(odd) is None
    odd.factor = 0.0
    assert score_symmetry(odd) is None


# Attention over text.


def test_figures_are_those_of_each_text_alone(make):
    """Against every map written out, one text at a time: in a batch, padding must not count."""
    folder = make(change=flip(9), operator_settings=SIGNED)
    looked = inspect_texts(folder, TEXTS)
    opened = open_model(folder)
    mapped = [attention_maps(opened, "x", text) for text in TEXTS]
    every, words_of = [torch.tensor(one["layers"]) for one in mapped], [one["tokens"] for one in mapped]
    assert looked["tokens"] == sum(maps.shape[-1] for maps in every)
    assert len({maps.shape[-1] for maps in every}) == 3
    for number, layer in enumerate(looked["layers"]):
        own, entropy, likeness = torch.zeros(4), torch.zeros(4), torch.zeros(4, 4)
        for maps in every:
            for token, rows in enumerate(maps[number].unbind(1)):  # (heads, to) of one token
                own += rows[:, token]
                entropy += -(rows * rows.clamp(min=1e-12).log()).sum(1) / math.log(maps.shape[-1])
                unit = rows / rows.norm(dim=1, keepdim=True)
                likeness += unit @ unit.T
        ((words, maps),) = [(one, of) for one, of in zip(words_of, every, strict=True) if one.count("indeed") == 3]
        indeed = [place for place, word in enumerate(words) if word == "indeed"]
        for head in range(4):
            like = sum(float(maps[number][head, one, other]) for one, other in permutations(indeed, 2))
            assert layer["heads"][head]["equal"] == pytest.approx(like / 3, abs=1e-4)
            assert layer["heads"][head]["own"] == pytest.approx(float(own[head]) / looked["tokens"], abs=1e-4)
            assert layer["heads"][head]["entropy"] == pytest.approx(float(entropy[head]) / looked["tokens"], abs=1e-4)
        torch.testing.assert_close(
            torch.tensor(layer["head_similarity"]), likeness / looked["tokens"], rtol=0, atol=1e-4
        )


@pytest.mark.parametrize("mask_diagonal", [False, True])
def test_even_attention(mask_diagonal, make):
    looked = inspect_texts(make(change=zero_scores, mask_diagonal=mask_diagonal), TEXTS[1:2])
    seen = looked["tokens"] - mask_diagonal
    assert looked["repeated"] == {"tokens": 3, "even": pytest.approx(2 / seen)}  # indeed
    for layer in looked["layers"]:
        for head in layer["heads"]:
            assert head["own"] == pytest.approx(0 if mask_diagonal else 1 / looked["tokens"], abs=1e-6)
            assert head["equal"] == pytest.approx(2 / seen, abs=1e-6)
            assert head["entropy"] == pytest.approx(1, abs=1e-5)
        torch.testing.assert_close(torch.tensor(layer["head_similarity"]), torch.ones(4, 4))


@pytest.mark.parametrize("operator", operators.names())
def test_every_operator_and_head_can_be_looked_into(operator, make):
    record = inspect_model("x", make(operator, head=TriuneForSequenceClassification), TEXTS, "made up")
    assert json.loads(json.dumps(record)) == record
    assert (record["study"], record["operator"], record["texts"], record["truncated"]) == ("inspect", operator, 3, 0)
    assert [len(layer["heads"]) for layer in record["layers"]] == [4, 4]
    (table,) = inspect_tables([record])
    assert (table.rows[0][2] == "–") == (operator != "shared")


def test_bad_texts(make):
    folder = make()
    for texts in ([], ["good", " "]):
        with pytest.raises(TriuneError):
            inspect_texts(folder, texts)
    looked = inspect_texts(folder, ["the cat was good " * 9, "bread"])
    assert looked["truncated"] == 1


# Cells, tables and the command.


def test_a_cell_is_done_once_and_for_its_own_texts(samples, tmp_path):
    cell = pickle.loads(pickle.dumps(inspect_cell("one", samples.shared, TEXTS, "made up", tmp_path)))  # noqa: S301
    assert finished(cell) is None
    record = cell.run(**cell.arguments)
    assert finished(cell) == json.loads(json.dumps(record))
    assert cell.record == tmp_path / "one.json"
    assert record["source"] == "made up"
    with pytest.raises(TriuneError):
        finished(inspect_cell("one", samples.shared, TEXTS[:1], "made up", tmp_path))
    with pytest.raises(TriuneError):
        finished(inspect_cell("one", samples.standard, TEXTS, "made up", tmp_path))


def test_tables(samples):
    ours = {**inspect_model("shared", samples.shared, TEXTS, "made up"), "file": "inspect/shared.json"}
    theirs = inspect_model("standard", samples.standard, TEXTS[:1], "made up")
    (table,) = inspect_tables([{**ours, "model": "a variant", "start": "exact"}, ours, theirs])
    assert [row[0] for row in table.rows] == ["standard", "shared", "a variant"]
    assert table.rows[0][2:9] == ["–"] * 7
    repels = f"{100 * ours['layers'][0]['score_scale']['negative_share']:.1f} %"
    assert table.rows[1][2:9] == [repels, "0.000", "0.000", "0.000", "–", "0.0 %", "0.0 %"]
    assert table.rows[1][12] == "1.00"
    heads = ours["layers"][0]["heads"]
    assert table.rows[1][9] == f"{50 * (heads[0]['own'] + heads[1]['own']):.1f} %"
    assert table.rows[1][11] == f"{ours['layers'][0]['head_similarity'][0][1]:.2f}"
    assert {where for where, files in table.sources.items() if files == ("inspect/shared.json",)} == {
        (row, column) for row in (1, 2) for column in range(2, 14)
    }
    notes = "\n".join(table.notes)
    assert "from the seed of the pre-training run: a variant." in notes
    assert "settings name (where signs were drawn at random, sizes only): shared." in notes
    assert "Attention of standard over 1 text," in notes
    assert "Attention of shared, a variant over 3 texts," in notes
    by_head = head_table([ours])
    assert [row[:3] for row in by_head.rows] == [["shared", "0", "0"], ["shared", "0", "1"]]
    assert [row[6] for row in by_head.rows] == ["1", "0"]
    assert [row[8] for row in by_head.rows] == [f"{100 * head['equal']:.1f} %" for head in heads]
    assert table.rows[1][13] == f"{100 * max(head['equal'] for head in heads):.1f} %"
    assert table.rows[0][13] == "–"  # no token stands twice in its text
    assert f"; {ours['repeated']['tokens']} stand there more than once, and even attention would put" in notes
    older = [
        {**one, "layers": [{**layer, "heads": [dict(head) for head in layer["heads"]]} for layer in one["layers"]]}
        for one in (ours, theirs)
    ]
    for head in (head for one in older for layer in one["layers"] for head in layer["heads"]):
        del head["equal"]
    assert [len(made.columns) for made in (*inspect_tables(older), head_table(older))] == [13, 8]


def test_command_draws_two_models_side_by_side(samples, command, tmp_path):
    arguments = ["inspect", samples.shared, f"$x_1$={samples.standard}", "--text", "the $cat$ was <good>", "--heads"]
    done = command(*arguments, "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "Inside the models, by head" in done.stdout
    names = {"maps.json", *(f"{name}.{kind}" for name in ("maps", "spectrum", "heads") for kind in ("svg", "png"))}
    assert {path.name for path in (tmp_path / "a").glob("*.*")} == names
    assert {path.stem for path in (tmp_path / "a" / "inspect").iterdir()} == {"shared", "$x_1$"}
    assert command(*arguments, "--out", tmp_path / "b").returncode == 0
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    maps = json.loads((tmp_path / "a" / "maps.json").read_text())
    assert [model["model"] for model in maps["models"]] == ["shared", "$x_1$"]
    for model in maps["models"]:
        assert model["tokens"][0] == "[CLS]"
        assert "cat" in model["tokens"]
        weights = torch.tensor(model["layers"])
        assert weights.shape == (1, 2, len(model["tokens"]), len(model["tokens"]))
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), rtol=0, atol=1e-3)


def test_command_without_a_model_that_has_role_vectors(samples, command, tmp_path):
    done = command("inspect", samples.standard, "--file", "-", "--out", tmp_path, "--json", stdin="good\n\nbad\n")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert (record["texts"], record["source"]) == (2, "lines of standard input")
    assert {path.name for path in tmp_path.glob("*.*")} == {"heads.svg", "heads.png"}


def test_command_says_what_it_leaves_out(samples, command, tmp_path):
    models = [f"{label}={samples.shared}" for label in "abc"]
    done = command("inspect", *models, "--text", "good " * 100, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a: 1 of 1 texts longer than the model's 64 tokens, and cut" in done.stderr
    assert "attention maps are drawn for one model or two, not for 3" in done.stderr
    assert not (tmp_path / "maps.svg").exists()
    assert (tmp_path / "spectrum.svg").exists()


def test_mistakes_are_one_line(samples, command, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "heads.svg").write_text("somebody's")
    for arguments, words in (
        (["--text", "good", "--out", tmp_path / "empty.txt"], "cannot write"),
        (["--text", "good", "--out", tmp_path], "holds a 'heads.svg' that is not ours"),
        ([], "give --text"),
        (["--text", " "], "--text is empty"),
        (["--file", tmp_path / "empty.txt"], "holds no text"),
        (["--file", tmp_path / "binary.txt"], "not UTF-8"),
        (["--file", tmp_path / "nowhere.txt"], "cannot read"),
    ):
        done = command("inspect", samples.shared, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    done = command("inspect", tmp_path / "no-model", "--text", "good")
    assert done.returncode == 2
    assert "there is no model folder" in done.stderr
