"""Answers of a fine-tuned model for rows that come in one by one: read, predicted and given out in batches."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from triune.data.encoded import encode_pairs, from_lists
from triune.data.squad import Question
from triune.data.tables import KINDS, iter_rows
from triune.data.windows import windows
from triune.errors import TriuneError, did_you_mean, shown
from triune.evaluation.predicting import predict_logits
from triune.evaluation.spans import best_answers, predictions
from triune.models.heads import TriuneForQuestionAnswering, TriuneForSequenceClassification
from triune.models.locate import locate_model, tokenizer_of

TASK_FILE = "task.json"  # beside a fine-tuned model: what `triune finetune` tells us about it
HEADS: dict[str, Any] = {
    "TriuneForSequenceClassification": TriuneForSequenceClassification,
    "BertForSequenceClassification": TriuneForSequenceClassification,
    "TriuneForQuestionAnswering": TriuneForQuestionAnswering,
    "BertForQuestionAnswering": TriuneForQuestionAnswering,
}
Row = tuple[int, dict[str, Any]]
SHOWN = 5  # numbers of rows that a warning names


class Predictor:
    """A fine-tuned model and what its folder says about the task it was made for."""

    def __init__(self, name: str, device: torch.device | None = None) -> None:
        location = locate_model(name)
        saved_as = (location.config.architectures or ["nothing"])[0]
        if saved_as not in HEADS:
            raise TriuneError(
                f"'{name}' is saved as {saved_as}, which answers no task: give a model that was fine-tuned "
                "(`triune finetune`)"
            )
        self.path = location.path
        self.about = _read_about(Path(location.path) / TASK_FILE)
        # As it was scored; a model from elsewhere, or of an earlier version, says nothing of it.
        self.best = {name: self.about[name] for name in ("n_best", "max_answer_tokens") if name in self.about}
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = HEADS[saved_as].from_pretrained(location.path).to(self.device)
        self.config = self.model.config
        self.tokenizer = tokenizer_of(location)
        self.longest = min(self.about.get("max_length", 512), self.config.max_position_embeddings)
        self.is_span = HEADS[saved_as] is TriuneForQuestionAnswering

    @property
    def columns(self) -> list[str]:
        """The columns that it reads, by the names of the data it was fine-tuned on."""
        if self.is_span:
            return ["question", "context"]
        return list(self.about.get("text", ["text"]))

    def answers(self, rows: Iterable[Row], columns: list[str], batch: int = 64) -> Iterator[dict[str, Any]]:
        """One answer for each row, in their order, `batch` rows at a time."""
        rows = iter(rows)
        while part := list(islice(rows, batch)):
            numbers = [number for number, _ in part]
            texts = [[cells[column] for _, cells in part] for column in columns]
            found = self._spans(numbers, texts) if self.is_span else self._classes(texts)
            for number, answer in zip(numbers, found, strict=True):
                yield {"row": number, **answer}

    def _classes(self, texts: list[list[str]]) -> Iterator[dict[str, Any]]:
        second = texts[1] if len(texts) > 1 else None
        encoded = encode_pairs(self.tokenizer, texts[0], second, None, self.longest)
        logits = self._logits(encoded, "classification")
        if self.config.num_labels == 1:
            yield from ({"value": float(value)} for value in logits[:, 0])
            return
        shares = torch.from_numpy(logits).softmax(1).numpy()
        for row in shares:
            best = int(row.argmax())
            yield {"label": self.config.id2label[best], "score": round(float(row[best]), 6)}

    def _spans(self, numbers: list[int], texts: list[list[str]]) -> Iterator[dict[str, Any]]:
        rows = zip(numbers, *texts, strict=True)
        questions = [Question(str(number), asked, told, ()) for number, asked, told in rows]
        stride = min(self.about.get("stride", 128), self.longest // 2)
        cut = windows(questions, self.tokenizer, self.longest, stride)
        encoded = from_lists(cut.input_ids, cut.first_length, np.zeros((len(cut), 2), dtype=np.int64))
        starts, ends = self._logits(encoded, "span")
        answers = best_answers(starts, ends, cut, questions, **self.best)
        found = predictions(answers, self.about.get("null_threshold"))
        for answer in answers:
            yield {
                "answer": found[answer.id],
                "score": round(answer.score, 4),
                "null_score": round(answer.null_score, 4),
            }

    def _logits(self, encoded: Any, kind: str) -> Any:
        return predict_logits(self.model, encoded, kind, int(self.tokenizer.pad_token_id), self.longest, self.device)


def input_rows(source: str, stream: IO[Any], kind: str | None, columns: list[str]) -> Iterator[Row]:
    """Rows of a table, or lines of plain text (.txt, or a stream of no other kind); `-` is the stream."""
    path = None if source == "-" else Path(source)
    kind = _plain(kind)
    if kind is not None and kind not in (known := ["lines", *(suffix[1:] for suffix in KINDS)]):
        raise TriuneError(f"unknown kind '{shown(kind)}'{did_you_mean(kind, known)}")
    if holds_lines(source, kind):
        if len(columns) != 1:
            raise TriuneError(
                f"lines of text hold one text, and the model reads {' and '.join(columns)}: give a table "
                "(.csv, .tsv, .jsonl, .parquet; --kind for standard input)"
            )
        yield from _lines(path, stream, columns[0])
    else:
        yield from iter_rows(stream if path is None else path, kind, columns, text=columns)


def without_text(rows: Iterator[Row], columns: list[str]) -> tuple[Iterator[Row], list[int]]:
    """The rows as they are, and the numbers of those with an empty text, which are there once they have been read."""
    empty: list[int] = []

    def noted() -> Iterator[Row]:
        for number, cells in rows:
            if not all(str(cells[column]).strip() for column in columns):
                empty.append(number)
            yield number, cells

    return noted(), empty


def holds_lines(source: str, kind: str | None) -> bool:
    """Whether the rows are lines of plain text: what standard input holds if nothing else is said."""
    return _plain(kind) == "lines" or (not kind and (source == "-" or Path(source).suffix == ".txt"))


def _plain(kind: str | None) -> str | None:
    return kind.lower().removeprefix(".") if kind else None


def _lines(path: Path | None, stream: IO[Any], column: str) -> Iterator[Row]:
    try:
        file = getattr(stream, "buffer", stream) if path is None else path.open("rb")
    except OSError as error:
        raise TriuneError(f"cannot read '{path}': {error.strerror}") from error
    try:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise TriuneError(f"'{path or 'standard input'}', line {number}: not UTF-8") from error
            yield number, {column: text.rstrip("\r\n")}
    except OSError as error:
        raise TriuneError(f"cannot read '{path or 'standard input'}': {error.strerror}") from error
    finally:
        if path is not None:
            file.close()


def _read_about(path: Path) -> dict[str, Any]:
    """What `triune finetune` wrote; a model from elsewhere has no such file."""
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TriuneError(f"cannot read '{path}': {error}") from error
    if not isinstance(about, dict):
        raise TriuneError(f"'{path}' must hold a JSON object")
    for name in ("max_length", "stride", "n_best", "max_answer_tokens"):
        value = about.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TriuneError(f"'{path}': {name} must be a whole number above 0, and is {json.dumps(value)}")
    return about
