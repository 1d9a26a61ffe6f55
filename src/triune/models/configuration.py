"""`TriuneConfig`: any BERT configuration, plus the attention operator and its settings."""

import dataclasses
import difflib
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.bert.configuration_bert import BertConfig

from triune import operators
from triune.errors import TriuneError, one_line
from triune.operators import AttentionShape
from triune.typed import mistyped


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
        mask_diagonal: no token attends to itself, unless it is the only one there is: the diagonal of the scores is
            masked out.
        masked_only_loss: in training, the masked-LM head computes logits and loss for labelled positions only, which is
            the same loss for a fraction of the work. `logits` then has one row for each labelled position.
        classifier_pooling: what heads for whole sequences read: "cls", the first token's state, as BERT; or "mean", the
            mean of all states. A model that was pre-trained for a short time only, and without a task for the first
            token, has hardly anything there.
        fused_gelu: on a GPU, in half precision, bias and GELU run in a kernel of ours (the same function, to rounding).
        fused_norm: the same for the norm before the feed-forward half, with the residual sum and the biases around it,
            in passes that compute gradients, where `norm_position` is "pre" and no hidden state is dropped. Neither
            kernel has second derivatives, nor takes part in `torch.func`.
        fused_rotary: the same for rotary positions, where attention is not that of the one-tensor kernels, which turn
            by themselves.
        folded: the model is for inference, its role vectors merged; made by `model.fold()`.
    """

    model_type: ClassVar[str] = "triune"

    operator: str = "shared"
    operator_settings: dict | None = None
    norm_position: Literal["post", "pre"] = "post"
    position: Literal["absolute", "rotary"] = "absolute"
    rotary_base: float | int = 10_000.0
    mask_diagonal: bool = False
    masked_only_loss: bool = False
    classifier_pooling: Literal["cls", "mean"] = "cls"
    fused_gelu: bool = True
    fused_norm: bool = True
    fused_rotary: bool = True
    folded: bool = False
    use_cache: bool = False  # an encoder has none

    def __post_init__(self, **kwargs: Any) -> None:
        _refuse_unknown(type(self), kwargs)
        super().__post_init__(**kwargs)
        self.check()
        # Defaults are written out, so that a saved configuration says all of what the model is.
        self.operator_settings = dataclasses.asdict(self.settings)
        _register_models()

    @property
    def attention_shape(self) -> AttentionShape:
        return AttentionShape(self.hidden_size, self.num_attention_heads)

    @property
    def settings(self) -> Any:
        """The operator's settings as its own dataclass."""
        return operators.settings_for(self.operator, self.operator_settings)

    def check(self) -> None:
        """Refuse what no model can be built from; models call it again, since a configuration can be edited."""
        sizes = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size")
        for name in (*sizes, "max_position_embeddings", "type_vocab_size"):
            if getattr(self, name) < 1:
                raise TriuneError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.hidden_size % self.num_attention_heads:
            raise TriuneError(
                f"hidden_size {self.hidden_size} is not divisible by num_attention_heads "
                f"{self.num_attention_heads}: change one of them"
            )
        if self.is_decoder or self.add_cross_attention:
            raise TriuneError("Triune models are encoders: leave is_decoder and add_cross_attention false")
        if self.position == "rotary" and self.attention_shape.head_width % 2:
            raise TriuneError(
                f"rotary positions turn pairs of dimensions, and heads are {self.attention_shape.head_width} wide: "
                "choose an even hidden_size / num_attention_heads"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise TriuneError(f"{name} is a share from 0 up to 1, not {getattr(self, name)}")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise TriuneError(f"pad_token_id {self.pad_token_id} is not in a vocabulary of {self.vocab_size}")
        if self.rotary_base <= 0:
            raise TriuneError(f"rotary_base must be positive, not {self.rotary_base}")
        if (act := self.hidden_act) not in (known := _activations()):
            raise TriuneError(f"unknown hidden_act '{act}': there are {', '.join(sorted(known))}")
        _ = self.settings  # raises where the operator or a setting is unknown

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A BERT's is one of ours from here on, or transformers would warn that it may not fit."""
        config_dict, unused = super().get_config_dict(*args, **kwargs)
        return _of_bert(config_dict), unused

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        config_dict = _of_bert(config_dict)
        if kwargs.get("operator", config_dict.get("operator")) != config_dict.get("operator"):
            config_dict.pop("operator_settings", None)  # they belong to the operator that is being replaced
        # What is overridden at load time is validated together with the rest, not set on the finished object.
        overridden = [field.name for field in dataclasses.fields(cls) if field.name in kwargs]
        config_dict.update({name: kwargs.pop(name) for name in overridden})
        try:
            return super().from_dict(config_dict, **kwargs)
        except TriuneError:
            raise
        except (AttributeError, TypeError, ValueError) as error:  # of transformers, which reads some values unchecked
            raise TriuneError(f"a value cannot be read ({one_line(error)})") from error


def _of_bert(config_dict: dict[str, Any]) -> dict[str, Any]:
    """A published BERT (the oldest do not say so) has the weights of the standard operator; others are as they are."""
    if config_dict.get("model_type") not in (BertConfig.model_type, None):
        return dict(config_dict)
    named = {key: value for key, value in config_dict.items() if key != "model_type"}
    return {"operator": "standard", **named}


def as_triune_config(config: Any) -> TriuneConfig:
    """A BERT configuration becomes one of ours with the standard operator; anything else is refused."""
    if isinstance(config, TriuneConfig):
        return config
    if isinstance(config, BertConfig):
        return TriuneConfig.from_dict(config.to_dict())
    raise TriuneError(f"a Triune model needs a TriuneConfig or a BertConfig, not a {type(config).__name__}")


def _refuse_unknown(cls: type, extra: dict[str, Any]) -> None:
    """BERT configurations carry many extra keys, which is fine; a near miss of a real one is a slip."""
    if (kind := extra.get("model_type")) == BertConfig.model_type:  # whose operator is another than our default
        raise TriuneError("a BERT's configuration is taken by TriuneConfig.from_dict and TriuneConfig.from_pretrained")
    if kind not in (None, cls.model_type):  # type: ignore[attr-defined]
        raise TriuneError(f"a configuration of model type '{kind}' is not one of BERT: Triune needs BERT's")
    if (positions := extra.get("position_embedding_type", "absolute")) != "absolute":
        raise TriuneError(f"position_embedding_type '{positions}' is not supported: position is 'absolute' or 'rotary'")
    known = [field.name for field in dataclasses.fields(cls)]
    settings = {field.name for name in operators.names() for field in dataclasses.fields(operators.get(name).Settings)}
    for key in extra:
        if key in settings or key == "settings":
            inside = "{…}" if key == "settings" else f"{{'{key}': …}}"
            raise TriuneError(f"'{key}' is about the operator: write operator_settings={inside}")
        if near := difflib.get_close_matches(key, known, n=1, cutoff=0.88):
            raise TriuneError(f"unknown key '{key}' in the configuration: did you mean '{near[0]}'?")


def _activations() -> Any:
    from transformers.activations import ACT2FN

    return ACT2FN


def _register_models() -> None:
    """A model can be asked of the Auto classes once there is a configuration for it, so this is early enough."""
    from triune.models import heads

    heads.register()


def _in_one_line(build: Any) -> Any:
    """A value of the wrong type raises an error of huggingface_hub over two lines; make it one of ours."""

    def build_or_say(self: TriuneConfig, **kwargs: Any) -> None:
        try:
            build(self, **kwargs)
        except StrictDataclassError as error:
            said = mistyped(type(self), kwargs) or one_line(error.__cause__ or error)
            raise TriuneError(f"TriuneConfig: {said}") from error

    return build_or_say


TriuneConfig.__init__ = _in_one_line(TriuneConfig.__init__)  # type: ignore[method-assign]
AutoConfig.register(TriuneConfig.model_type, TriuneConfig, exist_ok=True)
