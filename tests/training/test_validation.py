"""What the validation loss is of, and the level that it is set against."""

from collections import Counter
from math import log

import numpy as np
import pytest

from tests.training.conftest import TINY
from triune.data.blocks import Blocks
from triune.data.frequencies import unigram_loss
from triune.training.pretrain import pretrain
from triune.training.recipe import load_recipe, recipe_from_dict
from triune.training.stream import ValidationBlocks


def test_blocks_are_spread_over_the_whole_split_or_are_the_first(blocks):
    valid = Blocks(blocks, "valid")
    assert len(valid) > 12
    spread, first = (ValidationBlocks(valid, 6, spread) for spread in (True, False))
    assert first.indices.tolist() == [0, 1, 2, 3, 4, 5]
    steps = np.diff([*spread.indices, len(valid)])
    assert spread.indices[0] == 0
    assert steps.max() - steps.min() <= 1
    batch = spread.__getitems__([0, 5])
    assert batch["examples"].tolist() == spread.indices[[0, 5]].tolist()  # a block's mask, wherever it is scored
    assert batch["input_ids"].tolist() == valid.batch(spread.indices[[0, 5]])["input_ids"].tolist()


@pytest.mark.parametrize("spread", [True, False])
def test_a_split_that_is_smaller_is_scored_whole(blocks, spread):
    valid = Blocks(blocks, "valid")
    assert ValidationBlocks(valid, 10**6, spread).indices.tolist() == list(range(len(valid)))


def test_word_frequencies_are_those_of_training_and_the_text_is_the_scored_one(blocks):
    train, valid = Blocks(blocks, "train"), Blocks(blocks, "valid")
    special = set(train.manifest.tokenizer["special_ids"].values())
    seen = Counter(int(one) for one in train.batch(range(len(train)))["input_ids"].flatten() if int(one) not in special)
    total = sum(seen.values()) + train.vocab_size - len(special)
    scored = [int(one) for one in valid.batch([1, 3])["input_ids"].flatten() if int(one) not in special]
    by_hand = -sum(log((seen[one] + 1) / total) for one in scored) / len(scored)
    assert unigram_loss(train, valid, np.array([1, 3])) == pytest.approx(by_hand)
    assert unigram_loss(train, train, np.arange(len(train))) == pytest.approx(train.manifest.unigram_entropy, abs=0.01)


def test_a_run_scores_what_its_recipe_says_and_keeps_the_level(blocks, tmp_path):
    train, valid = Blocks(blocks, "train"), Blocks(blocks, "valid")
    for order in ("start", "whole"):
        recipe = load_recipe("pocket", [*TINY, "training.steps=1", f"training.evaluate_from={order}"])
        summary = pretrain(recipe, blocks, tmp_path / order)
        indices = ValidationBlocks(valid, 16, order == "whole").indices
        assert summary["unigram_loss"] == pytest.approx(unigram_loss(train, valid, indices))


def test_recipes_of_before_score_the_first_blocks():
    plain, whole = (load_recipe("pocket", change) for change in ([], ["training.evaluate_from=whole"]))
    assert "evaluate_from" not in plain.to_yaml()  # records of before stay those of the same recipe
    assert recipe_from_dict(plain.to_dict(), "again").training.evaluate_from == "start"
    assert recipe_from_dict(whole.to_dict(), "again").training.evaluate_from == "whole"
