"""Recipes: what is stated, what is refused."""

from pathlib import Path

import pytest

from triune import TriuneError
from triune.training.recipe import load_recipe, recipe_from_dict, swap_operator

# Those of pre-training: the others, of fine-tuning, mask nothing.
RECIPES = sorted(
    path for path in (Path(__file__).parents[2] / "recipes").glob("*.yaml") if "\nmasking:" in path.read_text()
)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_states_every_value(path):
    """No value is left to a default that a reader of the file cannot see."""
    import dataclasses

    import yaml

    recipe = load_recipe(str(path))
    written = yaml.safe_load(path.read_text())
    assert load_recipe(path.stem).to_dict() == recipe.to_dict()
    for part, values in recipe.to_dict().items():
        if part == "about":
            assert values
            continue
        unstated = {"epochs", "steps"} if part == "training" else set()
        assert set(values) - unstated <= set(written[part]), part
    assert recipe_from_dict(dataclasses.asdict(recipe), "again").to_dict() == recipe.to_dict()


def test_the_papers_values():
    recipe = load_recipe("paper-base")
    model, training = recipe.model, recipe.training
    assert (model.layers, model.width, model.heads, recipe.data.block_length) == (12, 768, 12, 512)
    assert (model.hidden_dropout, model.attention_dropout, recipe.masking.ratio) == (0.1, 0.1, 0.15)
    assert recipe.optimizer.betas == [0.9, 0.999]
    assert (training.per_device, training.sequences, training.epochs) == (132, 4 * 132, 20)
    assert (model.norm_position, model.position) == ("post", "absolute")


@pytest.mark.parametrize("operator", ["shared", "standard"])
def test_the_mini_model_is_small_and_sees_600_million_tokens(operator):
    import torch

    from triune import TriuneForMaskedLM, preset

    recipe = load_recipe("mini", swap_operator(load_recipe("mini"), operator))
    part, training = recipe.model, recipe.training
    assert training.steps * training.sequences * recipe.data.block_length == pytest.approx(600e6, rel=1e-3)
    with torch.device("meta"):
        config = preset(
            "mini", operator=part.operator, vocab_size=8192, max_position_embeddings=128, norm_position="pre"
        )
        model = TriuneForMaskedLM(config)
    assert (config.num_hidden_layers, config.hidden_size) == (part.layers, part.width)
    assert (config.num_attention_heads, config.intermediate_size) == (part.heads, part.feed_forward)
    assert 2 * model.num_parameters() < 12e6  # bytes in bfloat16


def test_settings_go_with_the_operator_that_they_belong_to():
    own = load_recipe("mini")
    assert own.model.operator_settings == {"role_start": "halves"}
    assert load_recipe("mini", swap_operator(own, "shared")) == own
    other = load_recipe("mini", swap_operator(own, "rolled")).model
    assert (other.operator, other.operator_settings) == ("rolled", {})


def test_what_an_operator_chooses_is_written_out():
    """Another version may choose otherwise, and a record has to say what it was."""

    def settings(operator, given):
        return load_recipe("pocket", [f"model.operator={operator}", given]).model.operator_settings

    assert settings("shared", "model.operator_settings={}") == {"role_start": "halves"}
    assert settings("shared", "model.operator_settings={role_start: null}") == {"role_start": "halves"}
    assert settings("shared", "model.operator_settings={role_start: ones}") == {"role_start": "ones"}
    assert settings("shared", "model.operator_settings={role_vectors: value}")["role_start"] == "ones"
    # What has a plain default is left out as ever: records of such recipes are there.
    assert settings("rolled", "model.operator_settings={}") == settings("standard", "model.operator_settings={}") == {}
    old = {"model": {"operator_settings": {}}, "training": {"steps": 1}}
    assert recipe_from_dict(old, "a record").model.operator_settings == {}


def test_powers_of_ten_are_numbers_in_settings_too():
    settings = ["model.operator_settings={role_start: normal}", "model.operator_settings.role_spread=1e-3"]
    assert load_recipe("pocket", settings).model.operator_settings == {"role_start": "normal", "role_spread": 0.001}


def test_overrides():
    recipe = load_recipe(
        "pocket",
        [
            "optimizer.learning_rate=1e-3",
            "training.epochs=2.5",
            "model.operator_settings.role_start=signed",
            "training.compile=true",
        ],
    )
    assert recipe.optimizer.learning_rate == 1e-3
    assert (recipe.training.epochs, recipe.training.steps) == (2.5, None)
    assert recipe.model.operator_settings["role_start"] == "signed"
    assert recipe.training.compile is True


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("optimizer.learning_rat=1", "did you mean 'learning_rate'?"),
        ("optimiser.learning_rate=1", "did you mean 'optimizer'?"),
        ("learning_rate=1", "not PART.KEY=VALUE"),
        ("optimizer.learning_rate", "not PART.KEY=VALUE"),
        ("optimizer.learning_rate=fast", "learning_rate"),
        ("optimizer.learning_rate=-1", "must be a positive number, not -1"),
        ("optimizer.learning_rate=.nan", "must be a positive number, not nan"),
        ("optimizer.epsilon=-1", "optimizer.epsilon must be a number from 0 up, not -1"),
        ("optimizer.weight_decay=-1", "optimizer.weight_decay must be a number from 0 up"),
        ("optimizer.clip=.nan", "optimizer.clip must be a number from 0 up"),
        ("optimizer.betas=[0, 1]", "two numbers from 0 up to 1"),
        ("optimizer.betas=[true, 0.9]", "two numbers"),
        ("optimizer.betas=[a, b]", "two numbers"),
        ("model.hidden_dropout=2", "model.hidden_dropout is a share from 0 up to 1, not 2"),
        ("model.heads=0", "model.heads must be at least 1, not 0"),
        ("optimizer.betas=[0.9]", "two numbers"),
        ("optimizer.schedule=step", "schedule"),
        ("masking.ratio=1.5", "between 0 and 1"),
        ("masking.mask_share=.nan", "shares that add up to at most 1"),
        ("model.operator_settings={1: 2}", "no setting '1'"),
        ("model.operator=nobody", "unknown operator 'nobody'"),
        ("training.steps=0", "must be a positive number"),
        ("training.seed=-1", "training.seed must be a whole number from 0"),
        ("training.evaluate_blocks=0", "training.evaluate_blocks must be at least 1, not 0"),
        ("training.sequences=-3", "at least 1"),
        ("training.steps=99999999999999999999", "'training.steps' is 99999999999999999999, which is too large"),
        ("optimizer.betas=[0, 9999999999999]", "'optimizer.betas' is 9999999999999, which is too large"),
        ("data.block_length=[", "not valid YAML"),
        ("model.operator_settings=null", "'model.operator_settings' is null; for nothing write {}"),
        ("optimizer.betas=null", "for nothing write []"),
    ],
)
def test_wrong_overrides_are_one_line(override, says):
    with pytest.raises(TriuneError) as caught:
        load_recipe("pocket", [override])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a list", "must hold the parts"),
        ("modle: {}", "did you mean 'model'?"),
        ("model: 3", "must hold keys and values"),
        ("model: {layer: 3}", "did you mean 'layers'?"),
        ("training: {steps: 3, epochs: 2}", "one of training.epochs and training.steps"),
        ("model: [", "cannot read recipe"),
    ],
)
def test_wrong_files_are_one_line(text, says, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(TriuneError) as caught:
        load_recipe(str(tmp_path / "mine.yaml"))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_recipe_lists_those_there_are():
    with pytest.raises(TriuneError, match=r"there are mini, paper-base, .*pocket, .*sprint"):
        load_recipe("poket")
    with pytest.raises(TriuneError, match="does not exist"):
        load_recipe("nowhere.yaml")


def test_endless_epochs_are_refused_and_a_beta_may_be_zero():
    with pytest.raises(TriuneError, match="must be a positive number"):
        load_recipe("pocket", ["training.steps=null", "training.epochs=.inf"])
    assert load_recipe("pocket", ["optimizer.betas=[0, 0.9]"]).optimizer.betas == [0, 0.9]
