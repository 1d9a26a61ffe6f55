"""`mini-standard` with a head that finds equal tokens, and its controls: the models of docs/results/matching.md.

    python docs/results/matching_head.py OUT
    python docs/results/matching_head.py OUT DATA/glue/stsb/dev.parquet

The first writes OUT/matching, where queries and keys of a head of the first layer are one random projection;
OUT/unlike, the control, where they are two; and OUT/late, where the head is one of the last layer. In OUT/one-segment
no head is changed: the embedding of second sentences, which pre-training on single texts never met, is that of first
ones. Nothing is trained. The second writes OUT/across.json: where these models and the published ones look, of pairs.
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as parquet
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


@torch.inference_mode()
def look_across(model: triune.TriuneForMaskedLM, tokenizer, firsts: list[str], seconds: list[str]) -> dict:
    """Of a token that stands in both sentences: its attention to the others like it in the other sentence.

    For each layer and head the mean over such tokens, and what attention that is even would give them.
    """
    shares, even, tokens = 0.0, 0.0, 0
    for start in range(0, len(firsts), 50):
        rows = slice(start, start + 50)
        texts = {"padding": True, "truncation": True, "return_tensors": "pt"}
        batch = tokenizer(firsts[rows], seconds[rows], **texts, return_special_tokens_mask=True)
        words = ~batch.pop("special_tokens_mask").bool()
        ids, places = batch["input_ids"], batch["token_type_ids"]
        like = (ids[:, :, None] == ids[:, None, :]) & (places[:, :, None] != places[:, None, :])
        like &= words[:, :, None] & words[:, None, :]
        maps = torch.stack(model(**batch, output_attentions=True).attentions)
        shares = shares + torch.einsum("lbnts,bts->ln", maps.double(), like.double())
        even += float((like.sum(-1) / batch["attention_mask"].sum(-1, keepdim=True)).sum())
        tokens += int(like.any(-1).sum())
    return {"tokens": tokens, "even": even / tokens, "heads": (shares / tokens).tolist()}


def look(out: Path, pairs: Path) -> None:
    table = parquet.read_table(pairs).to_pydict()
    found = {}
    for name in ("mini-standard", "mini-shared", *HEADS, "one-segment"):
        folder = triune.pretrained(name) if name.startswith("mini-") else out / name
        model = triune.TriuneForMaskedLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        texts = table["sentence1"], table["sentence2"]
        found[name.removeprefix("mini-")] = look_across(model, AutoTokenizer.from_pretrained(folder), *texts)
    (out / "across.json").write_text(json.dumps(found, indent=1))


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
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    elif len(sys.argv) == 3:
        look(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
