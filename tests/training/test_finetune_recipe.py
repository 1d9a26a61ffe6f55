"""Fine-tuning recipes: those that come with us load, and every mistake in one is one line."""

from pathlib import Path

import pytest
import yaml

from triune.errors import TriuneError
from triune.training.finetune_recipe import finetune_recipe_from_dict, load_finetune_recipe

OURS = ["strong", "paper-glue", "paper-squad", "pocket-tasks", "sprint-tasks", "quick"]


def refused(call, *words):
    with pytest.raises(TriuneError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("name", OURS)
def test_our_recipes_survive_being_written_down(name):
    recipe = load_finetune_recipe(name)
    assert recipe.about
    assert finetune_recipe_from_dict(recipe.to_dict(), "record") == recipe


@pytest.mark.parametrize("name", OURS)
def test_our_recipes_state_every_value(name):
    """No value is left to a default that a reader of the file cannot see."""
    written = yaml.safe_load((Path(__file__).parents[2] / "recipes" / f"{name}.yaml").read_text())
    for part, values in load_finetune_recipe(name).to_dict().items():
        if part != "about":
            assert set(written.get(part, {})) == set(values), part


def test_only_recipes_of_the_same_kind_are_proposed():
    refused(lambda: load_finetune_recipe("stong"), "strong", "paper-glue")
    with pytest.raises(TriuneError) as caught:
        load_finetune_recipe("stong")
    assert "paper-base" not in str(caught.value)


def test_the_papers_recipes_say_what_appendix_a4_says():
    glue, squad = load_finetune_recipe("paper-glue"), load_finetune_recipe("paper-squad")
    for recipe in (glue, squad):
        assert recipe.optimizer.learning_rates == [1e-4, 2e-5, 2e-6]
        assert recipe.optimizer.weight_decay == 0.1
        assert recipe.search.learning_rates == []
    assert (glue.training.epochs, glue.model.attention_dropout, glue.model.hidden_dropout) == (10, 0.1, None)
    assert (squad.training.epochs, squad.model.attention_dropout, squad.model.hidden_dropout) == (5, 0.05, 0.2)


def test_a_searched_recipe_has_one_rate_and_nothing_left_to_search():
    recipe = load_finetune_recipe("strong")
    assert len(recipe.search.learning_rates) > 1
    chosen = recipe.at_rate(3e-5)
    assert chosen.optimizer.learning_rates == [3e-5]
    assert chosen.search.learning_rates == []
    assert chosen.training == recipe.training
    assert recipe.optimizer.learning_rates != [3e-5]


def test_large_tasks_get_fewer_epochs_where_rows_are_limited():
    training = load_finetune_recipe("strong", ["training.epochs=5", "training.most_rows=1000"]).training
    assert [training.epochs_of(rows) for rows in (0, 1, 200, 201, 333, 1000, 1001, 9999)] == [5, 5, 5, 4, 3, 1, 1, 1]
    assert load_finetune_recipe("strong").training.epochs_of(10**9) == load_finetune_recipe("strong").training.epochs


def test_records_from_before_there_was_a_limit_are_of_the_same_recipe():
    assert "most_rows" not in load_finetune_recipe("strong").to_dict()["training"]
    assert load_finetune_recipe("strong", ["training.most_rows=9"]).to_dict()["training"]["most_rows"] == 9


def test_numbers_may_be_written_as_people_write_them():
    written = ["optimizer.learning_rates=[3e-5, 1]", "optimizer.epsilon=1e-6", "search.learning_rates=[2e-5]"]
    recipe = load_finetune_recipe("strong", written)
    assert recipe.optimizer.learning_rates == [3e-5, 1]
    assert recipe.optimizer.epsilon == 1e-6
    assert recipe.search.learning_rates == [2e-5]


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("training.epoch=3", "did you mean 'epochs'"),
        ("trainning.epochs=3", "did you mean 'training'"),
        ("training.epochs", "is not PART.KEY=VALUE"),
        ("training.epochs=many", "epochs"),
        ("training.epochs=0", "at least 1"),
        ("training.batch=0", "at least 1"),
        ("training.batch=2.5", "batch"),
        ("training.batch.size=2", "has no keys"),
        ("training.precision=float16", "precision"),
        ("data.max_length=4", "at least 8"),
        ("data.stride=0", "at least 1"),
        ("data.rows=0", "at least 1"),
        ("optimizer.learning_rates=[]", "at least one rate"),
        ("optimizer.learning_rates=[-1.0]", "positive"),
        ("optimizer.learning_rates=[.inf]", "positive"),
        ("optimizer.learning_rates=[.nan]", "positive"),
        ("optimizer.learning_rates=[fast]", "positive"),
        ("optimizer.learning_rates=[true]", "positive"),
        ("optimizer.learning_rates=1e-4", "learning_rates"),
        ("optimizer.warmup=1", "between 0 and 1"),
        ("optimizer.betas=[0.9]", "two numbers"),
        ("optimizer.betas=[0.9, 1.0]", "two numbers"),
        ("optimizer.weight_decay=-1", "weight_decay"),
        ("optimizer.epsilon=-1e-8", "epsilon"),
        ("optimizer.clip=-1", "clip"),
        ("optimizer.clip=.nan", "clip"),
        ("optimizer.schedule=step", "schedule"),
        ("model.hidden_dropout=1.5", "hidden_dropout"),
        ("model.attention_dropout=-0.1", "attention_dropout"),
        ("model.classifier_pooling=max", "classifier_pooling"),
        ("answers.n_best=0", "at least 1"),
        ("training.most_rows=0", "most_rows"),
        ("search.learning_rates=[0]", "positive"),
        ("search.learning_rates=[[1e-3]]", "positive"),
        ("search.learning_rates=[1e-4, 1.00000001e-4]", "must differ in their first six digits"),
    ],
)
def test_a_mistake_in_a_value_is_one_line(override, word):
    refused(lambda: load_finetune_recipe("strong", [override]), word)


def test_a_recipe_of_pre_training_is_refused():
    refused(lambda: load_finetune_recipe("pocket"), "unknown")


def test_an_unknown_recipe_names_those_there_are():
    refused(lambda: load_finetune_recipe("strongest"), *OURS)


def test_a_part_without_keys_has_its_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("search:\ntraining:\n  epochs: 4\n")
    recipe = load_finetune_recipe(str(path), ["search.learning_rates=[1e-3]"])
    assert recipe.search.learning_rates == [1e-3]
    assert recipe.training.epochs == 4


@pytest.mark.parametrize(
    "written",
    ["", "- 1", "training: 3", "training: [3]", "1: 2", "training: {1: 2}", "a: b: c", "\0", "search: {a: 1}"],
)
def test_other_files_are_no_recipes(written, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(written)
    refused(lambda: load_finetune_recipe(str(path)), str(path))
    refused(lambda: load_finetune_recipe(str(path), ["training.epochs=3"]))


def test_every_value_is_kept(tmp_path):
    """Written as YAML and read again, from a file."""
    recipe = load_finetune_recipe("strong", ["data.rows=7", "model.hidden_dropout=0.3"])
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(recipe.to_dict()))
    assert load_finetune_recipe(str(path)) == recipe
