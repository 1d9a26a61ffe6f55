"""The parts of a Triune encoder: BERT's, with a Triune operator in the attention.

Where the three parts of the project meet: `TriuneAttention` takes roles, or the one tensor that is all of them, from an
operator and hands them to the attention core. Shapes: B rows · T tokens · N heads · D head width · d = N·D.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.activations import GELUActivation
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bert.modeling_bert import (
    BertAttention,
    BertEmbeddings,
    BertEncoder,
    BertIntermediate,
    BertLayer,
    BertOutput,
    BertSelfOutput,
)
from transformers.utils import output_capturing

from triune import operators
from triune.errors import TriuneError
from triune.kernels import dispatch
from triune.kernels.add_norm import add_norm
from triune.kernels.bias_gelu import bias_gelu
from triune.kernels.packing import KEYWORDS, Packing
from triune.kernels.rotary import rotary_tables, rotate, rotate_in_one_pass
from triune.models.configuration import TriuneConfig
from triune.models.cores import core_for, mask_for
from triune.operators.joint import has_hooks, hook_count, is_plain


def _layer_norm(config: TriuneConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


def _is_plain_norm(norm: nn.Module, width: int) -> bool:
    return (
        type(norm) is nn.LayerNorm
        and norm.normalized_shape == (width,)
        and type(norm.weight) in (nn.Parameter, torch.Tensor)
        and type(norm.bias) in (nn.Parameter, torch.Tensor)
        and not has_hooks(norm)
    )


def _is_plain_output(part: Any) -> bool:
    """Nothing but a projection and a residual sum, for whoever computes them in its place."""
    return (
        type(part) in (BertOutput, BertSelfOutput)
        and is_plain(part.dense)
        and type(part.dropout) is nn.Dropout
        and type(part.LayerNorm) is nn.Identity
        and not any(has_hooks(one) for one in (part, part.dropout, part.LayerNorm))
    )


def _is_looked_at(attention: nn.Module) -> bool:
    """By hooks, which are shown the residual sum.

    Transformers' own look at the maps alone; they stay for good once maps or states were asked for.
    """
    if not has_hooks(attention):
        return False
    hooks = attention._forward_hooks.values()
    recording = [hook for hook in hooks if getattr(hook, "__module__", None) == output_capturing.__name__]
    return len(recording) < hook_count(attention) or "forward" in vars(attention)


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
        if config.position == "rotary":
            self.position_embeddings = NoPositionTable()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        if token_type_ids is None and self.position_ids.is_cuda:
            # One for all tokens, where BERT's looks the same row up for each of them: the GPU would add its gradient
            # token by token to one place in memory, which is slow and comes out otherwise each time.
            token_type_ids = self.position_ids.new_zeros((1, 1))
        embeddings = super().forward(input_ids, token_type_ids, *args, **kwargs)
        # Under autocast the tables, which are float32, would make the residual stream so: twice the bytes in every
        # norm and sum.
        return embeddings.to(dispatch.working_dtype(embeddings.device, embeddings.dtype))


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
        core: dispatch.AttentionCore | None = None,
        packing: Packing | None = None,
        past_key_values: None = None,
        product_only: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`attention_mask` and `rotary` come in the form that the core takes: the encoder makes all of them once.

        `product_only`: without the output projection's bias and the residual sum, which the layer computes itself.
        """
        core = core or core_for(self.config, hidden_states, attention_mask, packing, has_hooks(self.self))
        if kwargs.get("output_attentions") and not core.gives_maps:
            raise TriuneError(f"'{core.name}' gives no attention maps: call model.set_attn_implementation('eager')")
        given_BTd = self.input_norm(hidden_states)
        if core.name == dispatch.ONE_TENSOR:
            context_BTd, scale_d = self._over_one_tensor(core, given_BTd, attention_mask, rotary, packing)
            weights = None
        else:
            context_BTd, weights = self._over_roles(core, given_BTd, attention_mask, rotary, kwargs)
            scale_d = None
        return self._projected(context_BTd, scale_d, None if product_only else hidden_states), weights

    def _projected(
        self, context_BTd: torch.Tensor, scale_d: torch.Tensor | None, residual_BTd: torch.Tensor | None
    ) -> torch.Tensor:
        """Output projection and residual sum; without a residual, the product alone. `scale_d` is on the context."""
        if scale_d is None and residual_BTd is not None:
            return self.output(context_BTd, residual_BTd)
        dense = self.output.dense
        weight = dense.weight if scale_d is None else (dense.weight * scale_d).to(dense.weight.dtype)
        if residual_BTd is None:
            return nn.functional.linear(context_BTd, weight)
        states_BTd = nn.functional.linear(context_BTd, weight, dense.bias)
        return self.output.LayerNorm(self.output.dropout(states_BTd) + residual_BTd)

    @property
    def _dropout_now(self) -> float:
        return self.attention_dropout if self.training else 0.0

    def _over_one_tensor(
        self,
        core: dispatch.AttentionCore,
        hidden_BTd: torch.Tensor,
        key_mask: torch.Tensor | None,
        rotary: tuple[torch.Tensor, torch.Tensor] | None,
        packing: Packing | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The context, and the factor on it that the output projection is to take in."""
        one = self.self.one_tensor(hidden_BTd)
        # A factor on the values is one on the columns of the output projection: there it costs d² multiplications a
        # batch instead of d a token, and its gradient comes with that of the weight.
        in_projection = is_plain(self.output.dense) and not has_hooks(self.output)
        context_MND = core.function(
            one.shared_BTND.flatten(0, 1),
            one.score_scale_ND,
            None if in_projection else one.value_scale_ND,
            max_length=hidden_BTd.shape[1] if packing is None else packing.max_length,
            cu_seqlens=None if packing is None else packing.cu_seqlens,
            key_mask=key_mask,
            rotary=rotary,
            dropout=self._dropout_now,
            mask_diagonal=self.config.mask_diagonal,
        )
        context_BTd = context_MND.view(hidden_BTd.shape)
        if one.value_scale_ND is None or not in_projection:
            return context_BTd, None
        return context_BTd, one.value_scale_ND.flatten()

    def _over_roles(
        self,
        core: dispatch.AttentionCore,
        hidden_BTd: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotary: tuple[torch.Tensor, torch.Tensor] | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        turn = _unchanged if rotary is None else partial(self._turned, cos=rotary[0], sin=rotary[1])
        roles = self.self(hidden_BTd, turn)
        context_BTND, weights = core.function(
            self,
            roles.query_BNTD,
            roles.key_BNTD,
            roles.value_BNTD,
            attention_mask,
            dropout=self._dropout_now,
            scaling=roles.scale,
            **kwargs,
        )
        if roles.output_scale_ND is not None:
            context_BTND = context_BTND * roles.output_scale_ND
        return context_BTND.flatten(-2), weights

    def _turned(self, x_BNTD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        core = dispatch.choose_rotary(self.config.fused_rotary, x_BNTD.device, x_BNTD.dtype)
        return (rotate_in_one_pass if core.name == "rotate" else rotate)(x_BNTD, cos, sin)


class TriuneLayer(BertLayer):
    def __init__(self, config: TriuneConfig, layer_idx: int) -> None:
        GradientCheckpointingLayer.__init__(self)
        self.config = config
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

    def feed_forward_core(self, device: torch.device, dtype: torch.dtype) -> dispatch.FeedForwardCore:
        return dispatch.choose_feed_forward(
            self.config.fused_gelu,
            self.config.hidden_act,
            is_plain(self.intermediate.dense)
            and not has_hooks(self.intermediate)
            and type(self.intermediate.intermediate_act_fn) is GELUActivation,
            device,
            dispatch.working_dtype(device, dtype),
        )

    def norm_core(self, device: torch.device, dtype: torch.dtype) -> dispatch.NormCore:
        return dispatch.choose_norm(
            self.config.fused_norm,
            self._norm_hindrance,
            self.config.hidden_size,
            device,
            dispatch.working_dtype(device, dtype),
        )

    def _norm_hindrance(self) -> str | None:
        if self.config.norm_position != "pre":
            return f"norm_position is '{self.config.norm_position}', not 'pre'"
        if not torch.is_grad_enabled():
            return "no gradients are computed, and what it saves is in theirs"
        if self.chunk_size_feed_forward > 0:
            return "the feed-forward half runs in chunks"
        if type(self.attention).forward is not TriuneAttention.forward or _is_looked_at(self.attention):
            return "the attention is another, or a hook on it is to be shown the residual sum"
        if not (
            _is_plain_norm(self.feed_forward_norm, self.config.hidden_size)
            and _is_plain_output(self.attention.output)
            and _is_plain_output(self.output)
            and type(self).feed_forward_chunk is TriuneLayer.feed_forward_chunk
            and "feed_forward_chunk" not in vars(self)
        ):
            return "the norm or a projection beside it is more than that"
        if any(part.dropout.training and part.dropout.p > 0 for part in (self.attention.output, self.output)):
            return "hidden states are dropped"
        return None

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: None = None,
        encoder_attention_mask: None = None,
        past_key_values: None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        device, dtype = hidden_states.device, hidden_states.dtype
        one_dtype = dtype == dispatch.working_dtype(device, dtype)  # of the residual stream and the projections
        if not one_dtype or self.norm_core(device, dtype).name != "add-norm":
            return super().forward(hidden_states, attention_mask, **kwargs)
        product, _ = self.attention(hidden_states, attention_mask, product_only=True, **kwargs)
        norm: Any = self.feed_forward_norm
        dense = self.output.dense
        onward, given = add_norm(
            product, self.attention.output.dense.bias, hidden_states, norm.weight, norm.bias, dense.bias, norm.eps
        )
        return nn.functional.linear(self._activated(given), dense.weight) + onward

    def feed_forward_chunk(self, attention_output: torch.Tensor) -> torch.Tensor:
        return self.output(self._activated(self.feed_forward_norm(attention_output)), attention_output)

    def _activated(self, given: torch.Tensor) -> torch.Tensor:
        if self.feed_forward_core(given.device, given.dtype).name == "bias-gelu":
            dense = self.intermediate.dense
            return bias_gelu(nn.functional.linear(given, dense.weight), dense.bias)
        return self.intermediate(given)


def has_hooked_operator(layers: Iterable[Any]) -> bool:
    return any(has_hooks(layer.attention.self) for layer in layers)


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
        packing: Packing | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """`attention_mask` as the model got it. A batch whose padding was removed comes back padded."""
        core = core_for(self.config, hidden_states, attention_mask, packing, has_hooked_operator(self.layer))
        if packing is not None and "flash" in core.name:
            starts, longest = packing.cu_seqlens, packing.max_length
            kwargs.update(zip(KEYWORDS, (starts, starts, longest, longest), strict=True))
        outputs = super().forward(
            hidden_states,
            mask_for(core, self.config, hidden_states, attention_mask, packing),
            position_ids=position_ids,
            rotary=self._rotary(core, hidden_states, position_ids),
            core=core,
            packing=packing,
            **kwargs,
        )
        states = self.final_norm(outputs.last_hidden_state)
        outputs.last_hidden_state = states if packing is None else packing.put_back(states)
        return outputs

    def _rotary(
        self, core: dispatch.AttentionCore, hidden_BTd: torch.Tensor, positions: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        if self.config.position != "rotary":
            return None
        rows, tokens = hidden_BTd.shape[:2]
        if positions is None:
            positions = torch.arange(tokens, device=hidden_BTd.device)[None]
        cos, sin = rotary_tables(positions, self.config.attention_shape.head_width, self.config.rotary_base)
        if core.name != dispatch.ONE_TENSOR:
            return cos, sin
        cos, sin = (table.expand(rows, -1, -1, -1).flatten(0, 2) for table in (cos, sin))  # a row for each token
        return cos, sin
