"""`TriuneConfig`: any BERT configuration, plus the attention operator and its settings."""

import dataclasses
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.bert.configuration_bert import BertConfig

from triune import operators
from triune.errors import TriuneError
from triune.operators import AttentionShape


@strict
class TriuneConfig(BertConfig):
    """BERT's configuration with another attention operator in it.

    Args:
        operator: name of a registered operator; `triune operators` lists them.
        operator_settings: the operator's own settings; those left out take their defaults.
        norm_position: "post" normalises after each residual sum, as BERT; "pre" normalises what goes into each
            sublayer and leaves the residual stream alone. Both have the same number of parameters.
        position: "absolute" adds BERT's position table to the input; "rotary" turns queries and keys (never values)
            and has no table.
        rotary_base: base of the geometric series of rotary wavelengths.
        masked_only_loss: the masked-LM head computes logits and loss for labelled positions only, which is the same
            loss for a fraction of the work. With labels given, `logits` then has one row for each labelled position.
        folded: the model is for inference, its role vectors merged; made by `model.fold()`.
    """

    model_type: ClassVar[str] = "triune"

    operator: str = "shared"
    operator_settings: dict | None = None
    norm_position: Literal["post", "pre"] = "post"
    position: Literal["absolute", "rotary"] = "absolute"
    rotary_base: float | int = 10_000.0
    masked_only_loss: bool = False
    folded: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.hidden_size % self.num_attention_heads:
            raise TriuneError(
                f"hidden_size {self.hidden_size} is not divisible by num_attention_heads "
                f"{self.num_attention_heads}: change one of them"
            )
        if self.is_decoder or self.add_cross_attention:
            raise TriuneError("Triune models are encoders: leave is_decoder and add_cross_attention false")
        if kwargs.get("position_embedding_type", "absolute") != "absolute":
            raise TriuneError(
                f"position_embedding_type '{kwargs['position_embedding_type']}' is not supported: "
                "position is 'absolute' or 'rotary'"
            )
        if self.position == "rotary" and self.attention_shape.head_width % 2:
            raise TriuneError(
                f"rotary positions turn pairs of dimensions, and heads are {self.attention_shape.head_width} wide: "
                "choose an even hidden_size / num_attention_heads"
            )
        # Defaults are written out, so that a saved configuration says all of what the model is.
        settings = operators.settings_for(self.operator, self.operator_settings)
        self.operator_settings = dataclasses.asdict(settings)
        _register_models()

    @property
    def attention_shape(self) -> AttentionShape:
        return AttentionShape(self.hidden_size, self.num_attention_heads)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        config_dict = dict(config_dict)
        if config_dict.get("model_type") == BertConfig.model_type:
            # A published BERT: its weights are those of the standard operator.
            config_dict.pop("model_type")
            config_dict.setdefault("operator", "standard")
        if kwargs.get("operator", config_dict.get("operator")) != config_dict.get("operator"):
            config_dict.pop("operator_settings", None)  # they belong to the operator that is being replaced
        # What is overridden at load time is validated together with the rest, not set on the finished object.
        own = [field for field in cls.__annotations__ if field in kwargs]
        config_dict.update({field: kwargs.pop(field) for field in own})
        return super().from_dict(config_dict, **kwargs)


def _register_models() -> None:
    """A model can be asked of the Auto classes once there is a configuration for it, so this is early enough."""
    from triune.models import heads

    heads.register()


AutoConfig.register(TriuneConfig.model_type, TriuneConfig, exist_ok=True)
