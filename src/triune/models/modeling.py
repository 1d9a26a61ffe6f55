"""BERT with a Triune operator in its attention; everything else is inherited from transformers.

Where the three parts of the project meet: `TriuneAttention` takes roles from an operator and hands them to the
attention core. Shapes: B rows · T tokens · N heads · D head width · d = N·D.
"""

import copy
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bert.modeling_bert import (
    BertAttention,
    BertEmbeddings,
    BertEncoder,
    BertIntermediate,
    BertLayer,
    BertModel,
    BertOutput,
    BertPooler,
    BertPreTrainedModel,
    BertSelfOutput,
)
from transformers.utils.output_capturing import OutputRecorder

from triune import operators
from triune.errors import TriuneError
from triune.kernels import dispatch
from triune.kernels.rotary import rotary_tables, rotate
from triune.models import checkpoint
from triune.models.configuration import TriuneConfig, as_triune_config
from triune.operators import Operator


def _layer_norm(config: TriuneConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


def _mean_state(hidden_BTd: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    if attention_mask is None:
        return hidden_BTd.mean(1)
    if attention_mask.ndim != 2:
        raise TriuneError("classifier_pooling 'mean' needs an attention mask of (rows, tokens)")
    shown_BT1 = attention_mask[..., None].to(hidden_BTd.dtype)
    return (hidden_BTd * shown_BT1).sum(1) / shown_BT1.sum(1).clamp(min=1)


def _others_only(attention_mask: torch.Tensor | None, hidden_BTd: torch.Tensor) -> torch.Tensor:
    """Which key a query sees, (B, 1, T, T): the visible ones but its own, and its own where there is no other."""
    rows, tokens = hidden_BTd.shape[:2]
    own_TT = torch.eye(tokens, dtype=torch.bool, device=hidden_BTd.device)
    if attention_mask is None:
        shown = torch.ones((rows, 1, 1, tokens), dtype=torch.bool, device=hidden_BTd.device)
    elif attention_mask.ndim == 2:
        shown = attention_mask[:, None, None, :].bool()
    elif attention_mask.dtype == torch.bool:
        shown = attention_mask
    else:
        raise TriuneError("mask_diagonal needs an attention mask of (rows, tokens), or one of booleans")
    others = shown & ~own_TT
    return others | (own_TT & ~others.any(-1, keepdim=True))


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


class NoPositionTable(nn.Module):
    """In the place of BERT's position table where positions are rotary: adds nothing to the embeddings."""

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        # Integer zeros: they take on the dtype of what they are added to.
        return torch.zeros_like(position_ids).unsqueeze(-1)


class TriuneEmbeddings(BertEmbeddings):
    def __init__(self, config: TriuneConfig) -> None:
        super().__init__(config)
        self.longest = config.max_position_embeddings
        if config.position == "rotary":
            self.position_embeddings = NoPositionTable()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        given = input_ids if input_ids is not None else inputs_embeds
        if given is not None and given.shape[1] > self.longest:
            raise TriuneError(
                f"the input has {given.shape[1]} tokens, the model takes {self.longest} (max_position_embeddings): "
                "truncate it"
            )
        embeddings = super().forward(input_ids, token_type_ids, position_ids, inputs_embeds, **kwargs)
        if torch.is_autocast_enabled(embeddings.device.type):
            # Tables are float32 and would make the residual stream so: twice the bytes in every norm and sum.
            embeddings = embeddings.to(torch.get_autocast_dtype(embeddings.device.type))
        return embeddings


class TriuneAttention(BertAttention):
    """Operator, attention core, output projection. `self.self` holds the operator: BERT's key names."""

    def __init__(self, config: TriuneConfig, layer_idx: int) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = False  # sdpa reads it when there is no mask
        self.attention_dropout = config.attention_probs_dropout_prob
        self.self = operators.build(config.operator, config.attention_shape, config.operator_settings, config.folded)
        self.output = BertSelfOutput(config)
        self.input_norm: nn.Module = nn.Identity()
        if config.norm_position == "pre":
            self.output.LayerNorm = nn.Identity()
            if layer_idx > 0:  # the embeddings come to the first layer already normalised
                self.input_norm = _layer_norm(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
        past_key_values: None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        turn = _unchanged if rotary is None else partial(rotate, cos=rotary[0], sin=rotary[1])
        roles = self.self(self.input_norm(hidden_states), turn)
        core = dispatch.choose(self.config._attn_implementation)
        if kwargs.get("output_attentions") and not core.gives_maps:
            raise TriuneError(f"'{core.name}' gives no attention maps: call model.set_attn_implementation('eager')")
        context_BTND, weights = core.function(
            self,
            roles.query_BNTD,
            roles.key_BNTD,
            roles.value_BNTD,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=roles.scale,
            **kwargs,
        )
        if roles.output_scale_ND is not None:
            context_BTND = context_BTND * roles.output_scale_ND
        return self.output(context_BTND.flatten(-2), hidden_states), weights


class TriuneLayer(BertLayer):
    def __init__(self, config: TriuneConfig, layer_idx: int) -> None:
        GradientCheckpointingLayer.__init__(self)
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.seq_len_dim = 1
        self.is_decoder = False
        self.add_cross_attention = False
        self.attention = TriuneAttention(config, layer_idx)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config)
        self.feed_forward_norm: nn.Module = nn.Identity()
        if config.norm_position == "pre":
            self.feed_forward_norm = _layer_norm(config)
            self.output.LayerNorm = nn.Identity()

    def feed_forward_chunk(self, attention_output: torch.Tensor) -> torch.Tensor:
        return self.output(self.intermediate(self.feed_forward_norm(attention_output)), attention_output)


class TriuneEncoder(BertEncoder):
    def __init__(self, config: TriuneConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.layer = nn.ModuleList([TriuneLayer(config, index) for index in range(config.num_hidden_layers)])
        self.final_norm = _layer_norm(config) if config.norm_position == "pre" else nn.Identity()

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        if self.config.position == "rotary":
            positions = position_ids
            if positions is None:
                positions = torch.arange(hidden_states.shape[1], device=hidden_states.device)[None]
            kwargs["rotary"] = rotary_tables(positions, self.config.attention_shape.head_width, self.config.rotary_base)
        outputs = super().forward(hidden_states, attention_mask, position_ids=position_ids, **kwargs)
        outputs.last_hidden_state = self.final_norm(outputs.last_hidden_state)
        return outputs


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

    @property
    def attention_core(self) -> dispatch.AttentionCore:
        """Which core computes attention in this model, and why."""
        return dispatch.choose(self.config._attn_implementation)

    def fold(self) -> "TriunePreTrainedModel":
        """A copy for inference, with role vectors merged as the operator can; prints what that saves."""
        if self.config.folded:
            raise TriuneError("the model is folded already")
        folded = copy.deepcopy(self).eval()
        folded.config.folded = True
        for layer in folded.base_model.encoder.layer:
            layer.attention.self.fold(layer.attention.output.dense)
        before, after = self.num_parameters(), folded.num_parameters()
        print(f"folded {self.config.operator}: {before:,} -> {after:,} parameters ({after - before:+,})")
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
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        if self.pooler is None or self.config.classifier_pooling == "cls":
            return outputs
        pooled = self.pooler(_mean_state(outputs[0], attention_mask)[:, None])  # it takes the first of the states
        if isinstance(outputs, tuple):
            return (outputs[0], pooled, *outputs[2:])
        outputs.pooler_output = pooled
        return outputs

    def _create_attention_masks(
        self, attention_mask: torch.Tensor | None, embedding_output: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor | None, None]:
        if self.config.mask_diagonal:
            if self.attention_core.name not in ("reference", "sdpa"):
                raise TriuneError(
                    f"mask_diagonal needs attn_implementation 'eager' or 'sdpa', not '{self.attention_core.name}'"
                )
            return _others_only(attention_mask, embedding_output), None
        if attention_mask is None:
            # Every token sees every other. Some versions of transformers make a mask of ones here when compiled, and
            # PyTorch then computes attention in its slowest way.
            return None, None
        masks = super()._create_attention_masks(
            attention_mask=attention_mask, embedding_output=embedding_output, **kwargs
        )
        return masks[0], None
