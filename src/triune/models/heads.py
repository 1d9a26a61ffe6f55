"""Task heads: BERT's own, on the Triune encoder.

Forward passes and tied weights are inherited; a constructor only builds the children that the forward pass names.
"""

from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, BertTokenizer
from transformers.modeling_outputs import MaskedLMOutput
from transformers.models.auto import modeling_auto as auto
from transformers.models.bert.modeling_bert import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertOnlyMLMHead,
)
from transformers.utils.generic import can_return_tuple

from triune.models.configuration import TriuneConfig
from triune.models.loss import IGNORED as IGNORED
from triune.models.loss import label_loss
from triune.models.modeling import TriuneModel, TriunePreTrainedModel
from triune.operators.joint import has_hooks, is_plain


def padded_linear(x: torch.Tensor, linear: nn.Linear, multiple: int = 64) -> torch.Tensor:
    """`linear(x)` with outputs added until their number is a multiple: what matrix units are fast at.

    The added outputs are so low that no softmax sees them.
    """
    extra = -linear.out_features % multiple
    weight = nn.functional.pad(linear.weight, (0, 0, 0, extra))
    return nn.functional.linear(x, weight, nn.functional.pad(linear.bias, (0, extra), value=-1e4))


def _classifier_dropout(config: TriuneConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class TriuneForMaskedLM(TriunePreTrainedModel, BertForMaskedLM):
    def __init__(self, config: TriuneConfig) -> None:
        config = self._start(config)
        self.bert = TriuneModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        masked_positions: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """As BERT's, with two ways to compute logits and loss where they are wanted only.

        In training, `config.masked_only_loss` finds the labelled positions of `labels` (B, T) itself; evaluation gets
        logits for every position, which is what metrics expect. `masked_positions` (B, K) names the positions, with
        `labels` (B, K) beside it: shapes are then fixed, and nothing has to wait for the device.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            **kwargs,
        }
        find_labelled = labels is not None and self.config.masked_only_loss and self.training
        if masked_positions is None and not find_labelled:
            return super().forward(**inputs, labels=labels, return_dict=True)
        outputs = self.bert(**inputs, return_dict=True)
        hidden = outputs.last_hidden_state
        if masked_positions is not None:
            wanted = hidden.gather(1, masked_positions[..., None].expand(-1, -1, hidden.shape[-1]))
        else:
            assert labels is not None
            labelled = labels != IGNORED
            wanted, labels = hidden[labelled], labels[labelled]
        predictions = self.cls.predictions
        if wanted.is_cuda and is_plain(predictions.decoder) and not has_hooks(predictions) and not has_hooks(self.cls):
            logits = padded_linear(predictions.transform(wanted), predictions.decoder)
        else:
            logits = self.cls(wanted)
        # In training nobody reads them, and Trainer would copy them to float32: a gigabyte for a batch of base size.
        unread = masked_positions is not None and self.training
        return MaskedLMOutput(
            loss=None if labels is None else label_loss(logits, labels),
            logits=None if unread else logits[..., : self.config.vocab_size],
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TriuneForSequenceClassification(TriunePreTrainedModel, BertForSequenceClassification):
    def __init__(self, config: TriuneConfig) -> None:
        config = self._start(config)
        self.num_labels = config.num_labels
        self.bert = TriuneModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class TriuneForMultipleChoice(TriunePreTrainedModel, BertForMultipleChoice):
    def __init__(self, config: TriuneConfig) -> None:
        config = self._start(config)
        self.bert = TriuneModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()


class TriuneForTokenClassification(TriunePreTrainedModel, BertForTokenClassification):
    def __init__(self, config: TriuneConfig) -> None:
        config = self._start(config)
        self.num_labels = config.num_labels
        self.bert = TriuneModel(config, add_pooling_layer=False)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class TriuneForQuestionAnswering(TriunePreTrainedModel, BertForQuestionAnswering):
    def __init__(self, config: TriuneConfig) -> None:
        config = self._start(config)
        self.num_labels = config.num_labels
        self.bert = TriuneModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


# Heads by the names that the command uses.
HEADS: dict[str, type[TriunePreTrainedModel]] = {
    "none": TriuneModel,
    "masked-lm": TriuneForMaskedLM,
    "classification": TriuneForSequenceClassification,
    "question-answering": TriuneForQuestionAnswering,
    "token-classification": TriuneForTokenClassification,
    "multiple-choice": TriuneForMultipleChoice,
}

_AUTO_CLASSES = {
    auto.AutoModel: TriuneModel,
    auto.AutoModelForTextEncoding: TriuneModel,
    auto.AutoModelForPreTraining: TriuneForMaskedLM,
    auto.AutoModelForMaskedLM: TriuneForMaskedLM,
    auto.AutoModelForSequenceClassification: TriuneForSequenceClassification,
    auto.AutoModelForQuestionAnswering: TriuneForQuestionAnswering,
    auto.AutoModelForTokenClassification: TriuneForTokenClassification,
    auto.AutoModelForMultipleChoice: TriuneForMultipleChoice,
}


def register() -> None:
    """Make the heads known to transformers' Auto classes; calling it again changes nothing."""
    for auto_class, head in _AUTO_CLASSES.items():
        if TriuneConfig not in auto_class._model_mapping._extra_content:
            auto_class.register(TriuneConfig, head)
    # Folders that hold a vocabulary alone, or a tokenizer.json without its settings, load as BERT's do.
    AutoTokenizer.register(TriuneConfig, fast_tokenizer_class=BertTokenizer, exist_ok=True)
