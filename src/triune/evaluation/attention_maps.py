"""Where a model looks: attention weights over real text, as figures for each head or as whole maps.

Shapes: B rows · T tokens · N heads · R tokens of all rows together, padding left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from triune.cells import worker_device
from triune.data.batches import evaluation_plan
from triune.data.encoded import Encoded, OnDevice, encode_pairs
from triune.errors import TriuneError
from triune.models.locate import Location, locate_model, tokenizer_of
from triune.models.modeling import TriuneModel

TOKENS_A_BATCH = 1_024  # the maps of all layers and heads are in memory at once, and grow with the square of a text


@dataclass(frozen=True)
class OpenModel:
    """An encoder, whatever its head, that hands out its attention weights."""

    location: Location
    encoder: Any
    tokenizer: Any
    device: torch.device

    @property
    def longest(self) -> int:
        return int(self.location.config.max_position_embeddings)

    def encode(self, texts: Sequence[str]) -> Encoded:
        for number, text in enumerate(texts, start=1):
            if not text.strip():
                raise TriuneError(f"text {number} of {len(texts)} is empty: give words to look at")
        if not texts:
            raise TriuneError("there is no text to look at: give at least one")
        return encode_pairs(self.tokenizer, list(texts), None, None, self.longest)


def open_model(model: str | Path | Location) -> OpenModel:
    location = model if isinstance(model, Location) else locate_model(str(model))
    device = worker_device()
    # The head is left out; half-precision weights are widened, so that sums over many tokens stay exact.
    encoder = TriuneModel.from_pretrained(
        location.path, add_pooling_layer=False, attn_implementation="eager", dtype=torch.float32
    )
    return OpenModel(location, encoder.to(device).eval(), tokenizer_of(location), device)


@torch.inference_mode()
def look_at_texts(opened: OpenModel, texts: Sequence[str]) -> dict[str, Any]:
    """For each head the weight on the own token and the entropy, as means over all tokens; and how alike heads are.

    And, over tokens that a text has twice or more, the weight on the others like them.
    """
    encoded = opened.encode(texts)
    examples = OnDevice(encoded, int(opened.tokenizer.pad_token_id), opened.device)
    layers = [_Sums() for _ in range(opened.location.config.num_hidden_layers)]
    repeated, even = 0, 0.0
    for length, rows in evaluation_plan(encoded.lengths, TOKENS_A_BATCH, opened.longest):
        inputs, _, _ = examples.batch(torch.from_numpy(rows).to(opened.device), length)
        shown_BT = inputs["attention_mask"].bool()
        seen_BT = shown_BT.sum(1, keepdim=True).expand_as(shown_BT)
        if opened.location.config.mask_diagonal:
            seen_BT = seen_BT - (seen_BT > 1).long()
        equal_BTT = _equal_others(inputs["input_ids"], shown_BT)
        repeated += int(equal_BTT.any(-1).sum())
        even += float((equal_BTT.sum(-1) / seen_BT.clamp(min=1)).double().sum())
        maps = opened.encoder(**inputs, output_attentions=True).attentions
        for sums, weights_BNTT in zip(layers, maps, strict=True):
            sums.add(weights_BNTT, shown_BT, seen_BT, equal_BTT)
    return {
        "texts": len(encoded),
        "tokens": len(encoded.ids),
        "truncated": encoded.truncated,
        # Tokens that a text has twice or more, and the weight that even attention puts on the others like them.
        "repeated": {"tokens": repeated, "even": even / repeated if repeated else None},
        "layers": [sums.means() for sums in layers],
    }


def _equal_others(ids_BT: torch.Tensor, shown_BT: torch.Tensor) -> torch.Tensor:
    """Which tokens of a row are the same token in another place, (B, T, T)."""
    equal_BTT = (ids_BT[:, :, None] == ids_BT[:, None, :]) & shown_BT[:, :, None] & shown_BT[:, None, :]
    return equal_BTT & ~torch.eye(ids_BT.shape[1], dtype=torch.bool, device=ids_BT.device)


class _Sums:
    """Of one layer, over all the tokens so far, in float64."""

    def __init__(self) -> None:
        self.tokens = 0
        self.own_N: torch.Tensor | float = 0.0
        self.entropy_N: torch.Tensor | float = 0.0
        self.likeness_NN: torch.Tensor | float = 0.0
        self.repeated = 0
        self.equal_N: torch.Tensor | float = 0.0

    def add(
        self, weights_BNTT: torch.Tensor, shown_BT: torch.Tensor, seen_BT: torch.Tensor, equal_BTT: torch.Tensor
    ) -> None:
        weights_RNT = weights_BNTT.transpose(1, 2)[shown_BT].double()
        own_RN = weights_BNTT.diagonal(dim1=-2, dim2=-1).transpose(1, 2)[shown_BT].double()
        most_R = seen_BT[shown_BT].clamp(min=2).double().log()  # a token that sees one only has no entropy to divide
        unit_RNT = torch.nn.functional.normalize(weights_RNT, dim=-1)
        self.tokens += len(weights_RNT)
        self.own_N = self.own_N + own_RN.sum(0)
        self.entropy_N = self.entropy_N + (torch.special.entr(weights_RNT).sum(-1) / most_R[:, None]).sum(0)
        self.likeness_NN = self.likeness_NN + torch.einsum("rnt,rmt->nm", unit_RNT, unit_RNT)
        self.repeated += int(equal_BTT.any(-1).sum())
        self.equal_N = self.equal_N + torch.einsum("bnts,bts->n", weights_BNTT.double(), equal_BTT.double())

    def means(self) -> dict[str, Any]:
        own, entropy, likeness = (
            (torch.as_tensor(sums) / self.tokens).tolist() for sums in (self.own_N, self.entropy_N, self.likeness_NN)
        )
        equal = (torch.as_tensor(self.equal_N) / self.repeated).tolist() if self.repeated else [None] * len(own)
        figures = zip(own, entropy, equal, strict=True)
        heads = [{"own": one, "entropy": other, "equal": third} for one, other, third in figures]
        return {"heads": heads, "head_similarity": likeness}


@torch.inference_mode()
def attention_maps(opened: OpenModel, label: str, text: str) -> dict[str, Any]:
    """Every weight of one text: `layers[layer][head][from][to]`, with the tokens as the model has them."""
    encoded = opened.encode([text])
    ids = torch.from_numpy(encoded.ids).long()[None].to(opened.device)
    maps = opened.encoder(ids, output_attentions=True).attentions
    return {
        "model": label,
        "operator": opened.location.config.operator,
        "tokens": opened.tokenizer.convert_ids_to_tokens(encoded.ids.tolist()),
        "truncated": bool(encoded.truncated),
        "layers": [[_rounded(head) for head in layer[0]] for layer in maps],
    }


def _rounded(weights_TT: torch.Tensor) -> list[list[float]]:
    return [[round(weight, 5) for weight in row] for row in weights_TT.tolist()]
