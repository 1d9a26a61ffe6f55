"""Masking is a function of (seed, example, position), with the shares that the recipe states."""

import pytest
import torch

from triune.training.masking import IGNORED, Masking, random_bits

SPECIAL = (0, 2, 3)  # [PAD], [CLS], [SEP]


def masking(**overrides):
    return Masking(**{"seed": 1, "vocab_size": 500, "mask_id": 4, "special_ids": SPECIAL, **overrides})


def blocks(rows=64, length=80):
    ids = torch.randint(5, 500, (rows, length), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = 2, 3
    return ids


def test_same_example_same_mask_in_any_batch():
    ids, examples = blocks(), torch.arange(100, 164)
    whole = masking()(ids, examples)
    halves = [masking()(ids[part], examples[part]) for part in (slice(0, 20), slice(20, 64))]
    for name, value in whole.items():
        torch.testing.assert_close(torch.cat([half[name] for half in halves]), value, rtol=0, atol=0)


def test_other_seed_or_example_other_mask():
    ids, examples = blocks(), torch.arange(64)
    first = masking()(ids, examples)["masked_positions"].sort(1).values
    for other in (masking(seed=2)(ids, examples), masking()(ids, examples + 64)):
        same = (other["masked_positions"].sort(1).values == first).all(1)
        assert same.float().mean() < 0.1


def test_shares():
    ids, examples = blocks(rows=2000), torch.arange(2000)
    masked = masking()(ids, examples)
    labelled = masked["labels"] != IGNORED
    assert labelled.all()
    assert masked["labels"].shape == (2000, 12)
    assert torch.equal(masked["labels"], ids.gather(1, masked["masked_positions"]))
    now = masked["input_ids"].gather(1, masked["masked_positions"])
    assert abs((now == 4).float().mean() - 0.8) < 0.01
    assert abs((now == masked["labels"]).float().mean() - 0.1) < 0.01
    changed = now[(now != 4) & (now != masked["labels"])]
    assert abs(len(changed) / now.numel() - 0.1) < 0.01
    assert changed.min() >= 1 and not torch.isin(changed, torch.tensor([*SPECIAL, 4])).any()  # noqa: PT018
    untouched = torch.ones_like(ids, dtype=torch.bool).scatter(1, masked["masked_positions"], False)
    assert torch.equal(masked["input_ids"][untouched], ids[untouched])


def test_every_position_is_chosen_alike():
    chosen = torch.zeros(80)
    positions = masking()(blocks(rows=4000), torch.arange(4000))["masked_positions"]
    chosen.scatter_add_(0, positions.flatten(), torch.ones(positions.numel()))
    share = chosen[1:-1] / 4000
    assert chosen[0] == chosen[-1] == 0
    assert (share - 12 / 78).abs().max() < 0.03


def test_no_position_twice_and_padding_never():
    ids = blocks()
    ids[:, 30:] = 0
    masked = masking()(ids, torch.arange(64))
    labelled = masked["labels"] != IGNORED
    assert (labelled.sum(1) == round(29 * 0.15)).all()
    for row, kept in zip(masked["masked_positions"], labelled, strict=True):
        places = row[kept].tolist()
        assert len(set(places)) == len(places)
        assert max(places) < 30
    assert torch.equal(masked["input_ids"][:, 30:], ids[:, 30:])


def test_a_block_of_padding_has_no_label():
    masked = masking()(torch.zeros(2, 20, dtype=torch.long), torch.arange(2))
    assert (masked["labels"] == IGNORED).all()
    assert (masked["input_ids"] == 0).all()


def test_whole_words():
    """Odd ids continue a word: either all pieces of a word are hidden or none, and about as many as without."""
    starts = torch.arange(500) % 2 == 0
    starts[3] = True  # [SEP] continues nothing
    ids = blocks(rows=500)
    ids[:, 1] = 6
    masked = masking(word_starts=starts, mask_share=1.0, random_share=0.0)(ids, torch.arange(500))
    words = starts[ids].cumsum(1)
    hidden = (masked["input_ids"] == 4) & (ids != 4)
    assert 10 < hidden.sum(1).float().mean() <= 12
    for row in range(500):
        for word in words[row][hidden[row]].unique():
            assert hidden[row][words[row] == word].all()
    labelled = torch.zeros_like(hidden).scatter(1, masked["masked_positions"], masked["labels"] != IGNORED)
    assert torch.equal(labelled, hidden)


@pytest.mark.parametrize("whole", [False, True])
def test_nearly_all_may_be_hidden(whole):
    words = torch.ones(100, dtype=torch.bool) if whole else None
    masking = Masking(1, 100, 4, (0, 1, 2, 3, 4), ratio=0.995, word_starts=words)
    tokens = torch.randint(5, 100, (2, 64))
    tokens[:, 0] = 2
    assert ((masking(tokens, torch.arange(2))["labels"] != IGNORED).sum(1) >= 62).all()


def test_bits_are_random():
    bits = random_bits(3, 0, torch.arange(2000), 50)
    assert bits.min() >= 0
    assert bits.unique().numel() == bits.numel()
    for shift in range(0, 63, 7):
        assert abs(((bits >> shift) & 1).float().mean() - 0.5) < 0.01
    other = random_bits(3, 1, torch.arange(2000), 50)
    assert abs((((bits ^ other) >> 20) & 1).float().mean() - 0.5) < 0.01
