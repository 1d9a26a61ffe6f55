"""Task heads: BERT's own, on the Triune encoder.

Each `__init__` skips BERT's, which would build BERT's encoder first; forward passes and tied weights are inherited.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import MaskedLMOutput
from transformers.models.auto import modeling_auto as auto
from transformers.models.bert.modeling_bert import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertOnlyMLMHead,
    BertPreTrainedModel,
)
from transformers.utils.generic import can_return_tuple

from triune.models.configuration import TriuneConfig
from triune.models.modeling import TriuneModel, TriunePreTrainedModel

IGNORED = -100  # the label of a position that has none


def _classifier_dropout(config: TriuneConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class TriuneForMaskedLM(TriunePreTrainedModel, BertForMaskedLM):
    def __init__(self, config: TriuneConfig) -> None:
        BertPreTrainedModel.__init__(self, config)
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
        **kwargs: Any,
    ) -> MaskedLMOutput:
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            **kwargs,
        }
        if labels is None or not self.config.masked_only_loss:
            return super().forward(**inputs, labels=labels, return_dict=True)
        outputs = self.bert(**inputs, return_dict=True)
        labelled = labels != IGNORED
        logits = self.cls(outputs.last_hidden_state[labelled])
        return MaskedLMOutput(
            loss=nn.functional.cross_entropy(logits, labels[labelled]),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TriuneForSequenceClassification(TriunePreTrainedModel, BertForSequenceClassification):
    def __init__(self, config: TriuneConfig) -> None:
        BertPreTrainedModel.__init__(self, config)
        self.num_labels = config.num_labels
        self.bert = TriuneModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class TriuneForMultipleChoice(TriunePreTrainedModel, BertForMultipleChoice):
    def __init__(self, config: TriuneConfig) -> None:
        BertPreTrainedModel.__init__(self, config)
        self.bert = TriuneModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()


class TriuneForTokenClassification(TriunePreTrainedModel, BertForTokenClassification):
    def __init__(self, config: TriuneConfig) -> None:
        BertPreTrainedModel.__init__(self, config)
        self.num_labels = config.num_labels
        self.bert = TriuneModel(config, add_pooling_layer=False)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class TriuneForQuestionAnswering(TriunePreTrainedModel, BertForQuestionAnswering):
    def __init__(self, config: TriuneConfig) -> None:
        BertPreTrainedModel.__init__(self, config)
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
