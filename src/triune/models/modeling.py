"""BERT with a Triune operator in its attention; everything else is inherited from transformers.

A batch may come packed, or leave its padding behind on its way through the encoder. Shapes: B rows · T tokens · d.
"""

import copy
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from torch import nn
from transformers.models.bert.modeling_bert import BertModel, BertPooler, BertPreTrainedModel
from transformers.utils.output_capturing import OutputRecorder

from triune.errors import TriuneError
from triune.kernels import dispatch
from triune.kernels.packing import Packing, packing_from, without_padding
from triune.models import checkpoint, cores
from triune.models.configuration import TriuneConfig, as_triune_config
from triune.models.layers import TriuneAttention, TriuneEmbeddings, TriuneEncoder, TriuneLayer, has_hooked_operator
from triune.operators import Operator


def _pooled_state(
    hidden_BTd: torch.Tensor, attention_mask: torch.Tensor | None, packing: Packing | None, config: TriuneConfig
) -> torch.Tensor:
    """What the pooler reads, where it is not the first state of each row: (rows or sequences, d)."""
    if packing is not None:
        first = config.classifier_pooling == "cls"
        return packing.first_states(hidden_BTd) if first else packing.mean_states(hidden_BTd)
    if attention_mask is None:
        return hidden_BTd.mean(1)
    if attention_mask.ndim != 2:
        raise TriuneError("classifier_pooling 'mean' needs an attention mask of (rows, tokens)")
    shown_BT1 = attention_mask[..., None].to(hidden_BTd.dtype)
    return (hidden_BTd * shown_BT1).sum(1) / shown_BT1.sum(1).clamp(min=1)


class TriunePreTrainedModel(BertPreTrainedModel):
    """What all Triune models share: configuration, starting values, loading with checks, folding.

    Models call `_start(config)` in the place of BERT's constructors, which would build BERT's encoder first.
    """

    config_class = TriuneConfig
    config: TriuneConfig
    # Trainer must average the loss over accumulated batches itself: BERT's heads return means.
    accepts_loss_kwargs = False
    _no_split_modules: ClassVar[list[str]] = ["TriuneEmbeddings", "TriuneLayer"]
    _can_record_outputs: ClassVar[dict[str, Any]] = {
        "hidden_states": TriuneLayer,
        "attentions": OutputRecorder(TriuneAttention, index=1),
    }

    def _start(self, config: TriuneConfig) -> TriuneConfig:
        config = as_triune_config(config)
        config.check()
        BertPreTrainedModel.__init__(self, config)
        return config

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Operator):
            module.initialize(self.config.initializer_range)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        return checkpoint.load_checked(super().from_pretrained, *args, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """As transformers does; who may read config.json may read the weights, which safetensors writes for their owner
        alone; and a full disk is an OSError, of which safetensors makes an error of its own."""
        try:
            super().save_pretrained(save_directory, *args, **kwargs)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        folder = Path(save_directory)
        if (folder / "config.json").is_file():  # of several processes, one writes it
            for weights in folder.glob("model*.safetensors"):
                shutil.copymode(folder / "config.json", weights)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Where nothing is asked for, transformers takes "sdpa"; we take the automatic choice."""
        requested = requested_attention or dispatch.AUTOMATIC
        try:
            return super().get_correct_attn_implementation(requested, is_init_check)
        except ValueError:
            dispatch.choose(requested)  # a name that nobody knows: its list has ours in it
            raise

    @property
    def attention_core(self) -> dispatch.AttentionCore:
        """Which core computes attention in this model where nothing is padded, and why."""
        return self.attention_core_for()

    def attention_core_for(self, attention_mask: torch.Tensor | None = None, **inputs: Any) -> dispatch.AttentionCore:
        """Which core a forward pass with these inputs would take here and now (device, autocast), and why."""
        config, device, dtype = self.config, self.device, self.dtype
        hooked = has_hooked_operator(self._layers)
        packed = inputs.get("cu_seq_lens_q") is not None or cores.removes_padding(
            config, device, dtype, attention_mask, inputs, hooked
        )
        here = cores.situation(config, device, dtype, attention_mask, packed, hooked)
        return dispatch.choose(config._attn_implementation, here)

    @property
    def feed_forward_core(self) -> dispatch.FeedForwardCore:
        """What computes the activation of the feed-forward half here and now, and why."""
        return self._layers[0].feed_forward_core(self.device, self.dtype)

    @property
    def norm_core(self) -> dispatch.NormCore:
        """What computes the residual sum and the norm between the halves of a layer here and now, and why."""
        return self._layers[0].norm_core(self.device, self.dtype)

    @property
    def rotary_core(self) -> dispatch.RotaryCore | None:
        """What turns queries and keys by their position here and now, and why; None where there is nothing to turn, as
        positions are absolute or the one-tensor kernels turn S themselves."""
        if self.config.position != "rotary" or self.attention_core.name == dispatch.ONE_TENSOR:
            return None
        working = dispatch.working_dtype(self.device, self.dtype)
        return dispatch.choose_rotary(self.config.fused_rotary, self.device, working)

    @property
    def _layers(self) -> list[TriuneLayer]:
        """Wherever the encoder is: a model of a user's own may call it as it likes."""
        return [module for module in self.modules() if isinstance(module, TriuneLayer)]

    def fold(self) -> "TriunePreTrainedModel":
        """A copy for inference, with role vectors merged as the operator can."""
        if self.config.folded:
            raise TriuneError("the model is folded already")
        folded = copy.deepcopy(self).eval()
        folded.config.folded = True
        for layer in folded._layers:
            layer.attention.self.fold(layer.attention.output.dense)
        return folded


class TriuneModel(TriunePreTrainedModel, BertModel):
    """The bare encoder, with a pooler for heads that classify whole sequences."""

    def __init__(self, config: TriuneConfig, add_pooling_layer: bool = True) -> None:
        config = self._start(config)
        self.gradient_checkpointing = False
        self.embeddings = TriuneEmbeddings(config)
        self.encoder = TriuneEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """As BERT's. Packed input is one row, with transformers' keywords for it (`cu_seq_lens_q`, `max_length_q`);
        the pooled output then has a row for each sequence."""
        inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        inputs["position_ids"] = position_ids
        packing = self._packing(inputs, attention_mask, kwargs)
        shown = attention_mask
        if packing is None and self._removes_padding(inputs, attention_mask, kwargs):
            assert attention_mask is not None
            packing, shown = self._without_padding(inputs, attention_mask.to(self.embeddings.position_ids.device))
        outputs = super().forward(**inputs, attention_mask=shown, packing=packing, **kwargs)
        came_packed = packing is not None and packing.kept_M is None
        if self.pooler is None or (self.config.classifier_pooling == "cls" and not came_packed):
            return outputs
        state = _pooled_state(outputs[0], attention_mask, packing if came_packed else None, self.config)
        pooled = self.pooler(state[:, None])  # it takes the first of the states
        if isinstance(outputs, tuple):
            return (outputs[0], pooled, *outputs[2:])
        outputs.pooler_output = pooled
        return outputs

    def _packing(
        self, inputs: dict[str, Any], attention_mask: torch.Tensor | None, kwargs: dict[str, Any]
    ) -> Packing | None:
        """The packing that the caller names; input that the model cannot take is refused."""
        given = inputs["inputs_embeds"] if inputs["input_ids"] is None else inputs["input_ids"]
        if given is None:
            return None  # BERT says what is wrong with it
        tokens, longest = given.shape[1], self.config.max_position_embeddings
        packing = packing_from(kwargs, given.shape[:2], longest)
        if (length := tokens if packing is None else packing.max_length) > longest:
            raise TriuneError(
                f"the input has {length} tokens, the model takes {longest} (max_position_embeddings): truncate it"
            )
        if attention_mask is not None and attention_mask.ndim == 2 and attention_mask.shape != given.shape[:2]:
            raise TriuneError(
                f"the attention mask is {tuple(attention_mask.shape)}, the input {tuple(given.shape[:2])}: "
                "it needs a number for each token"
            )
        if packing is not None:
            if attention_mask is not None:
                raise TriuneError("packed input has no padding: leave attention_mask out")
            if inputs["position_ids"] is None:
                inputs["position_ids"] = packing.positions(tokens)
        return packing

    def _removes_padding(
        self, inputs: dict[str, Any], attention_mask: torch.Tensor | None, kwargs: dict[str, Any]
    ) -> bool:
        table = self.embeddings.word_embeddings.weight if inputs["inputs_embeds"] is None else inputs["inputs_embeds"]
        hooked = has_hooked_operator(self.encoder.layer)
        return cores.removes_padding(self.config, table.device, table.dtype, attention_mask, kwargs, hooked)

    def _without_padding(
        self, inputs: dict[str, Any], attention_mask: torch.Tensor
    ) -> tuple[Packing | None, torch.Tensor | None]:
        """Leaves in `inputs` what is not padding; gives the packing, and the mask where one is still needed."""
        packing = without_padding(attention_mask)
        if packing is None:
            return None, None
        assert packing.kept_M is not None
        if not packing.kept_M.numel():
            return None, attention_mask  # there would be nothing to compute with
        if self.pooler is not None and self.config.classifier_pooling == "cls" and not attention_mask[:, 0].all():
            return None, attention_mask  # the pooler reads the first state of a row, also where that is padding
        if inputs["position_ids"] is None:  # a token keeps the position that it has in the padded batch
            inputs["position_ids"] = torch.arange(packing.max_length, device=attention_mask.device)[None]
        inputs.update({name: packing.take(value) for name, value in inputs.items() if value is not None})
        return packing, None

    def _create_attention_masks(
        self, attention_mask: torch.Tensor | None, **kwargs: Any
    ) -> tuple[torch.Tensor | None, None]:
        """Left to the encoder, which knows what core and what packing it is for."""
        return attention_mask, None
