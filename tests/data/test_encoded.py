"""Tokenised examples: batches equal the tokenizer's own, and what is kept on disk is what would be made anew."""

import copy

import numpy as np
import pytest
import torch

from triune.data import encoded as under_test
from triune.data.encoded import FILLER, OnDevice, cached_pairs, encode_pairs, kept_arrays
from triune.data.examples import make_examples
from triune.data.tokenizer import load_tokenizer

FIRST = ["the cat was good", "bad", "one house and so on indeed", "the river was awful indeed indeed indeed"]
SECOND = ["a dog", "the song was sad in the end", "?", "bread"]


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(samples.tokenizer)


@pytest.mark.parametrize("second", [None, SECOND], ids=["singles", "pairs"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1], [2, 2]])
def test_batches_are_those_of_the_tokenizer(second, order, tokenizer):
    examples = OnDevice(encode_pairs(tokenizer, FIRST, second, [4, 5, 6, 7], 64), 0, torch.device("cpu"))
    pick = [second[i] for i in order] if second else None
    expected = tokenizer([FIRST[i] for i in order], pick, padding=True, return_tensors="pt")
    length = expected["input_ids"].shape[1]
    inputs, labels, held = examples.batch(torch.tensor(order), length)
    assert inputs.keys() == set(expected)
    for name, tensor in inputs.items():
        assert torch.equal(tensor, expected[name]), name
    assert labels.tolist() == [4 + i for i in order]
    assert held.all()


def test_longer_batches_only_add_padding(tokenizer):
    examples = OnDevice(encode_pairs(tokenizer, FIRST, SECOND, None, 64), 0, torch.device("cpu"))
    rows = torch.arange(4)
    short, long = (examples.batch(rows, length)[0] for length in (int(examples.lengths.max()), 64))
    width = short["input_ids"].shape[1]
    for name in short:
        assert torch.equal(long[name][:, :width], short[name])
        assert not long[name][:, width:].any()  # the padding token is 0 here


def test_another_padding_token_is_used(tokenizer):
    examples = OnDevice(encode_pairs(tokenizer, FIRST, None, None, 64), 9, torch.device("cpu"))
    inputs, _, _ = examples.batch(torch.tensor([1]), 20)
    length = int(examples.lengths[1])
    assert (inputs["input_ids"][0, length:] == 9).all()
    assert not (inputs["input_ids"][0, :length] == 9).any()


def test_fillers_are_told_apart(tokenizer):
    examples = OnDevice(encode_pairs(tokenizer, FIRST, None, [1, 0, 1, 0], 64), 0, torch.device("cpu"))
    inputs, _, held = examples.batch(torch.tensor([2, FILLER, FILLER]), 16)
    assert held.tolist() == [True, False, False]
    assert inputs["attention_mask"].sum(1).min() > 0  # a row without a token would divide by zero somewhere


@pytest.mark.parametrize("second", [None, SECOND], ids=["singles", "pairs"])
def test_examples_that_lose_tokens_are_counted(second, tokenizer):
    whole = encode_pairs(tokenizer, FIRST, second, None, 512)
    assert whole.truncated == 0
    for limit in (6, 8, 10):
        cut = encode_pairs(tokenizer, FIRST, second, None, limit)
        assert cut.truncated == (whole.lengths > limit).sum()
        assert cut.lengths.tolist() == np.minimum(whole.lengths, limit).tolist()


def test_chunks_change_nothing(tokenizer):
    whole, parts = (encode_pairs(tokenizer, FIRST, SECOND, [0, 1, 0, 1], 9, chunk) for chunk in (4096, 3))
    for name in ("ids", "starts", "first_lengths", "labels", "truncated"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


def test_numbers_stay_numbers_and_classes_whole(tokenizer):
    assert encode_pairs(tokenizer, FIRST, None, [0.5, 1.0, 2.0, 3.0], 64).labels.dtype == np.float32
    assert encode_pairs(tokenizer, FIRST, None, [0, 1, 2, 3], 64).labels.dtype == np.int64


class Untouchable:
    """In the place of `encode_pairs` when the cache must be enough."""

    def __call__(self, *ignored):
        raise AssertionError("encoded again")


def same(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        and type(getattr(one, name)) is type(getattr(other, name))
        for name in ("ids", "starts", "first_lengths", "labels", "truncated")
    )


def test_the_cache_is_used(tokenizer, tmp_path, monkeypatch):
    examples = make_examples(FIRST, SECOND, [0.5, 1.0, 2.0, 3.0], [0, 1, 2, 3], "here")
    made = cached_pairs(tmp_path, tokenizer, examples, 9)
    assert made.truncated
    monkeypatch.setattr(under_test, "encode_pairs", Untouchable())
    assert same(cached_pairs(tmp_path, tokenizer, examples, 9), made)


@pytest.mark.parametrize("change", ["length", "text", "label", "second", "tokenizer"])
def test_anything_else_is_encoded_anew(change, tokenizer, tmp_path):
    first, second, labels, length = list(FIRST), list(SECOND), [0, 1, 0, 1], 64
    cached_pairs(tmp_path, tokenizer, make_examples(first, second, labels, [0, 1, 2, 3], "here"), length)
    if change == "length":
        length = 12
    elif change == "text":
        first[3] += " end"
    elif change == "label":
        labels[3] = 0
    elif change == "second":
        second = None
    else:
        tokenizer = type(tokenizer)(vocab=dict(reversed(tokenizer.get_vocab().items())), do_lower_case=False)
    examples = make_examples(first, second, labels, [0, 1, 2, 3], "here")
    assert same(
        cached_pairs(tmp_path, tokenizer, examples, length), encode_pairs(tokenizer, first, second, labels, length)
    )
    assert len(list(tmp_path.iterdir())) == 2


def test_kept_arrays_are_what_was_made_however_they_lie(tmp_path):
    whole = {"turned": np.arange(6).reshape(2, 3).T, "empty": np.zeros((0, 2)), "every": np.arange(9)[::2]}
    for _ in range(2):
        kept = kept_arrays(tmp_path, {"of": "this"}, lambda: whole, whole)
        assert all(np.array_equal(kept[name], array) for name, array in whole.items())
    more = whole | {"new": np.ones(1)}
    assert kept_arrays(tmp_path, {"of": "this"}, lambda: more, more)["new"] == [1]  # a file of another version


def test_rows_that_are_cut_on_the_other_side_are_others(tokenizer, tmp_path):
    examples = make_examples(["one two three four five six seven"], None, [0], [0], "here")
    right = cached_pairs(tmp_path, tokenizer, examples, 5)
    left = copy.deepcopy(tokenizer)
    left.truncation_side = "left"
    assert cached_pairs(tmp_path, left, examples, 5).ids.tolist() != right.ids.tolist()


@pytest.mark.parametrize("damage", [b"", b"nothing of the kind", None], ids=["empty", "other", "cut"])
def test_a_damaged_cache_is_made_anew(damage, tokenizer, tmp_path):
    examples = make_examples(FIRST, None, [0, 1, 0, 1], [0, 1, 2, 3], "here")
    made = cached_pairs(tmp_path, tokenizer, examples, 64)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] if damage is None else damage)
    assert same(cached_pairs(tmp_path, tokenizer, examples, 64), made)
    assert file.read_bytes() == whole
