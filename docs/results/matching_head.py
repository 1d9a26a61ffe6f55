"""`mini-standard` with a head that finds equal tokens, and its controls: the models of docs/results/matching.md.

    python docs/results/matching_head.py OUT

writes OUT/matching, where queries and keys of a head of the first layer are one random projection; OUT/unlike, the
control, where they are two; and OUT/late, where the head is one of the last layer. In OUT/one-segment no head is
changed: the embedding of second sentences, which pre-training on single texts never met, is that of first ones.
Nothing is trained.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer

import triune

HEAD = 3
GAIN = 1.4  # the score of two equal tokens is then some units above others
HEADS = {"matching": (0, True), "unlike": (0, False), "late": (3, True)}  # layer, and whether queries are keys


def make_anew(model: triune.TriuneForMaskedLM, layer: int, equal: bool) -> None:
    operator = model.bert.encoder.layer[layer].attention.self
    width, of_head = operator.shape.width, operator.shape.head_width
    draws = torch.Generator().manual_seed(0)
    query, key = (GAIN * torch.randn(of_head, width, generator=draws) / width**0.5 for _ in range(2))
    # Rotary pairs (i, i + D/2) turn the faster the smaller i is: on the slower half a match counts at any distance.
    fast = torch.arange(of_head) % (of_head // 2) < of_head // 4
    query[fast] = key[fast] = 0
    rows = slice(HEAD * of_head, (HEAD + 1) * of_head)
    with torch.no_grad():
        operator.query.weight[rows] = query
        operator.key.weight[rows] = query if equal else key
        operator.query.bias[rows] = operator.key.bias[rows] = 0


def main(out: Path) -> None:
    folder = triune.pretrained("mini-standard")
    for name in (*HEADS, "one-segment"):
        model = triune.TriuneForMaskedLM.from_pretrained(folder, dtype=torch.float32)
        if name in HEADS:
            make_anew(model, *HEADS[name])
        else:
            segments = model.bert.embeddings.token_type_embeddings.weight.data
            segments[1] = segments[0]
        model.save_pretrained(out / name)
        AutoTokenizer.from_pretrained(folder).save_pretrained(out / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
