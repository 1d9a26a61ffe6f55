"""What a task is to a training run: encoded examples, a model with the right head, scores out of logits.

Two kinds: texts with a class or a number (`TextProblem`), and questions whose answer is a span (`SpanProblem`).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triune.data.encoded import Encoded, cached_pairs, from_lists
from triune.data.squad import Question
from triune.data.tasks import Examples, Task
from triune.data.tokenizer import describe_tokenizer
from triune.data.windows import windows
from triune.errors import TriuneError, one_line
from triune.evaluation import squad
from triune.evaluation.metrics import METRICS, score
from triune.evaluation.predict import TASK_FILE
from triune.evaluation.spans import best_answers, predictions
from triune.files import write_text
from triune.models.heads import TriuneForQuestionAnswering, TriuneForSequenceClassification
from triune.models.locate import Location, tokenizer_of
from triune.training.finetune_recipe import FinetuneRecipe

NAMED_ON_SERVER = ("mnli", "qnli", "rte")  # the GLUE server wants the names of classes here, and numbers elsewhere
SPAN_TITLES = {"exact": "exact match", "f1": "F1"}


# Of questions, those of the last problem: a worker does one run of a task after the other, and cuts the text once.
_last_windows: dict[str, Any] = {}


@dataclass
class Result:
    scores: dict[str, float]
    primary: float
    files: dict[str, Any] = field(default_factory=dict)  # JSON to be kept beside the record
    threshold: float | None = None


@dataclass
class Split:
    """Examples as they were read, and as the model takes them."""

    given: Any  # Examples, or a list of questions
    encoded: Encoded
    source: str
    subset: bool
    windows: Any = None  # of questions


class Problem:
    kind: str
    head: Any

    def __init__(self, task: Task, model: Location, recipe: FinetuneRecipe, pocket: bool) -> None:
        self.task = task
        self.pocket = pocket
        self.recipe = recipe
        self.tokenizer = tokenizer_of(model)
        self.pad_id = int(self.tokenizer.pad_token_id)
        self.max_length = min(recipe.data.max_length, model.config.max_position_embeddings)
        self.splits: dict[str, Split] = {}

    @property
    def train(self) -> Encoded:
        return self.splits["train"].encoded

    @property
    def dev(self) -> Encoded:
        return self.splits["dev"].encoded

    def load(self, path: str, recipe: FinetuneRecipe) -> Any:
        try:
            return self.head.from_pretrained(
                path,
                attn_implementation=recipe.training.attention,
                dtype=torch.float32,  # the optimiser's steps are too small for half-precision weights, as published
                ignore_mismatched_sizes=True,  # a head that was made for another task is made anew
                **recipe.model.config_values(),
                **self.head_settings(),
            )
        except ImportError as error:  # an attention whose package is not there
            raise TriuneError(f"cannot load '{path}': {one_line(error)}") from error

    def head_settings(self) -> dict[str, Any]:
        return {}

    def evaluate(self, logits: Any, split: str = "dev") -> Result:
        raise NotImplementedError

    def described(self) -> dict[str, Any]:
        train, dev = self.splits["train"], self.splits["dev"]
        return {
            "task": self.task.name,
            "task_title": self.task.title,
            "kind": self.kind,
            "metric": self.task.primary,
            "metric_title": SPAN_TITLES[self.task.primary] if self.kind == "span" else METRICS[self.task.primary].title,
            "max_length": self.max_length,
            "train_rows": len(train.given if self.kind == "span" else train.encoded),
            "train_source": train.source,
            "dev_rows": len(dev.given if self.kind == "span" else dev.encoded),
            "dev_source": dev.source,
            "subset": train.subset or dev.subset,
            "pocket": self.pocket,
            "truncated": train.encoded.truncated,
        }

    def save(self, model: Any, folder: Path, threshold: float | None = None) -> None:
        try:
            model.save_pretrained(folder)
            self.tokenizer.model_max_length = model.config.max_position_embeddings  # where pipelines cut longer texts
            self.tokenizer.save_pretrained(folder)
        except Exception as error:  # tokenizers reports a full disk as a bare Exception
            raise TriuneError(f"cannot write the model to '{folder.parent}': {error}") from error
        about = {"task": self.task.name, "null_threshold": threshold, **self.how_it_answers()}
        write_text(folder / TASK_FILE, json.dumps(about, indent=1) + "\n")

    def how_it_answers(self) -> dict[str, Any]:
        """What `triune predict` must know to answer as the model was scored."""
        return {
            "kind": self.kind,
            "text": list(self.task.text),
            "classes": list(self.task.classes),
            "max_length": self.max_length,
        }

    def test_files(self, predict: Callable[[Encoded], Any], result: Result) -> dict[str, str]:
        raise TriuneError(f"there is no test-server file for {self.task.title}")


class TextProblem(Problem):
    head = TriuneForSequenceClassification

    def __init__(
        self,
        task: Task,
        model: Location,
        recipe: FinetuneRecipe,
        splits: dict[str, Examples],
        cache: Path | None,
        pocket: bool,
    ) -> None:
        super().__init__(task, model, recipe, pocket)
        self.kind = task.kind
        for name, given in splits.items():
            encoded = cached_pairs(cache, self.tokenizer, given, self.max_length)
            self.splits[name] = Split(given, encoded, given.source, given.subset)

    def head_settings(self) -> dict[str, Any]:
        if self.kind == "regression":
            return {"num_labels": 1, "problem_type": "regression"}
        names = dict(enumerate(self.task.classes))
        return {
            "num_labels": len(names),
            "id2label": names,
            "label2id": {name: number for number, name in names.items()},
            "problem_type": "single_label_classification",
        }

    def evaluate(self, logits: Any, split: str = "dev") -> Result:
        labels, found = self.splits[split].encoded.labels, self._answers(logits)
        scores = {name: score(name, found, labels) for name in self.task.metrics}
        kept = {
            "ids": list(self.splits[split].given.ids),
            "labels": [_plain(label) for label in labels],
            "predictions": [_plain(one) for one in found],
        }
        return Result(scores, scores[self.task.primary], {f"{split}.json": kept})

    def _answers(self, logits: np.ndarray) -> np.ndarray:
        return logits[:, 0] if self.kind == "regression" else logits.argmax(1)

    def test_files(self, predict: Callable[[Encoded], Any], result: Result) -> dict[str, str]:
        """In the form that the GLUE server reads: a line for each example, classes by name where GLUE wants names."""
        files = {}
        for split, name in self.task.server_files.items():
            found = self._answers(predict(self.splits[split].encoded))
            lines = ["index\tprediction"]
            for number, one in enumerate(found):
                lines.append(f"{number}\t{self._server_value(one)}")
            files[name] = "\n".join(lines) + "\n"
        return files

    def _server_value(self, found: Any) -> str:
        if self.kind == "regression":
            return f"{min(5.0, max(0.0, float(found))):.3f}"
        return self.task.classes[int(found)] if self.task.name in NAMED_ON_SERVER else str(int(found))


class SpanProblem(Problem):
    head = TriuneForQuestionAnswering
    kind = "span"

    def __init__(
        self,
        task: Task,
        model: Location,
        recipe: FinetuneRecipe,
        splits: dict[str, tuple[list[Question], str, bool]],
        data_hash: str,
        pocket: bool,
    ) -> None:
        super().__init__(task, model, recipe, pocket)
        self.stride = stride = min(recipe.data.stride, self.max_length // 2)
        sources = tuple((name, source, subset) for name, (_, source, subset) in splits.items())
        tokenizer = json.dumps(describe_tokenizer(self.tokenizer), sort_keys=True)
        key = (data_hash, sources, tokenizer, self.max_length, stride)
        if _last_windows.get("key") != key:
            made = {name: self._cut(*split, stride) for name, split in splits.items()}
            _last_windows.update(key=key, splits=made)
        self.splits = dict(_last_windows["splits"])

    def _cut(self, questions: list[Question], source: str, subset: bool, stride: int) -> Split:
        cut = windows(questions, self.tokenizer, self.max_length, stride)
        encoded = from_lists(cut.input_ids, cut.first_length, np.stack([cut.start, cut.end], 1))
        return Split(questions, encoded, source, subset, cut)

    def head_settings(self) -> dict[str, Any]:
        return {"num_labels": 2}  # first and last token; a model that was fine-tuned on classes has as many as those

    def how_it_answers(self) -> dict[str, Any]:
        settings = self.recipe.answers
        more = {"stride": self.stride, "n_best": settings.n_best, "max_answer_tokens": settings.max_answer_tokens}
        return {**super().how_it_answers(), **more}

    def evaluate(self, logits: Any, split: str = "dev") -> Result:
        part, settings = self.splits[split], self.recipe.answers
        starts, ends = logits
        answers = best_answers(
            starts, ends, part.windows, part.given, n_best=settings.n_best, max_answer_tokens=settings.max_answer_tokens
        )
        threshold = None
        if any(not question.answers for question in part.given):
            threshold = squad.best_threshold(answers, part.given).threshold  # on the split that is scored: docs say so
        version: squad.Version = "v1.1" if threshold is None else "v2.0"
        found = predictions(answers, threshold)
        official = squad.evaluate(found, part.given, version)
        scores = {name: float(value) for name, value in official.items()}
        if threshold is not None:
            scores["null_threshold"] = threshold
        each = squad.per_question(found, part.given, version)
        files = {
            f"{split}.json": {"ids": [question.id for question in part.given], **each},
            f"{split}-predictions.json": found,
            f"{split}-n-best.json": {answer.id: answer.n_best for answer in answers},
        }
        return Result(scores, scores[self.task.primary], files, threshold)


def _plain(value: Any) -> int | float:
    return int(value) if np.issubdtype(type(value), np.integer) else float(str(value))  # all digits that it has
