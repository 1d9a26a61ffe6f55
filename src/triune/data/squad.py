"""Extractive question answering: SQuAD v1.1 and v2.0 files, flat rows as on the hub, TriviaQA made extractive.

A question whose answer is not where the file says would train a model on noise and cost it points unseen, so every
answer is held against its context, and the first mistake stops the reader with its place.
"""

import codecs
import io
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet

from triune.data.sources import COMPRESSIONS, draw
from triune.data.text import open_stream
from triune.errors import TriuneError, one_line

KINDS = (".json", ".jsonl", ".parquet")
COLUMNS = ("id", "context", "question", "answers")
IMPOSSIBLE = "is_impossible"  # of v2.0, where it is
LONGEST_TRIVIA_CONTEXT = 3000  # characters: about 650 tokens, two to four windows of 384
ARTICLES = ("a", "an", "the")

Placed = tuple[str, Any]  # where a row stands, for messages, and the row


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]  # (text, where it starts in the context); empty = unanswerable


class Trivia(NamedTuple):
    questions: list[Question]
    left_out: int  # rows whose pages do not hold the answer


def read_squad(path: Path | str) -> list[Question]:
    """The questions of a file: nested SQuAD .json, or flat rows in .jsonl or .parquet; plain, .gz, .xz or .zst."""
    path = Path(path).expanduser()
    try:
        return _questions(_file_rows(path), f"'{path}'")
    except TriuneError:
        raise
    except (OSError, EOFError, UnicodeError, lzma.LZMAError, pyarrow.ArrowException) as error:
        raise TriuneError(f"cannot read '{path}': {getattr(error, 'strerror', None) or one_line(error)}") from error


def read_squad_files(paths: Sequence[Path]) -> list[Question]:
    """The questions of several files of one split; answers go by id, which no two may have."""
    questions: list[Question] = []
    first_place: dict[str, Path] = {}
    for path in paths:
        for question in read_squad(path):
            if question.id in first_place:
                raise TriuneError(
                    f"'{path}': id '{question.id}' is in '{first_place[question.id]}' too; make ids different"
                )
            first_place[question.id] = path
            questions.append(question)
    return questions


def rows_to_questions(rows: Iterable[Mapping[str, Any]], where: str) -> list[Question]:
    """Flat rows with id, context, question, answers{text, answer_start}; `where` names the data set in messages."""
    return _questions(((f"{where}, row {number}", row) for number, row in enumerate(rows, start=1)), where)


def _questions(rows: Iterable[Placed], where: str) -> list[Question]:
    questions: list[Question] = []
    first_place: dict[str, str] = {}
    for place, row in rows:
        question = _question(row, place)
        if question.id in first_place:
            raise TriuneError(f"{place}: id '{question.id}' was at {first_place[question.id]} too; make ids different")
        first_place[question.id] = place.removeprefix(f"{where}, ")
        questions.append(question)
    if not questions:
        raise TriuneError(f"{where} holds no questions")
    return questions


def _question(row: Any, place: str) -> Question:
    id = _text(row, "id", place)
    place = f"{place} (id '{id}')"
    context, question = _text(row, "context", place), _text(row, "question", place)
    impossible = row.get(IMPOSSIBLE)
    if not isinstance(impossible, bool | None):
        raise TriuneError(f"{place}: '{IMPOSSIBLE}' is {type(impossible).__name__}; it must be true or false")
    if impossible:  # v2.0 files may still carry answers that only seem to fit
        return Question(id, question, context, ())
    return Question(id, question, context, _answers(row, context, place))


def _answers(row: Any, context: str, place: str) -> tuple[tuple[str, int], ...]:
    given = _field(row, "answers", (Mapping, list), place)
    if isinstance(given, Mapping):  # the hub keeps columns, the nested files keep objects
        texts = _field(given, "text", (list, tuple), f"{place}, answers")
        starts = _field(given, "answer_start", (list, tuple), f"{place}, answers")
        if len(texts) != len(starts):
            raise TriuneError(f"{place}: {len(texts)} answer texts but {len(starts)} of 'answer_start'; give one each")
        given = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    answers = []
    for number, answer in enumerate(given, start=1):
        here = f"{place}, answer {number}"
        text, start = _text(answer, "text", here), _field(answer, "answer_start", (int,), here)
        if start < 0 or not context.startswith(text, start):
            found = context.find(text)
            hint = f"it is at {found}" if found >= 0 else "the context does not hold it"
            raise TriuneError(
                f"{here}: {_short(text)} is not at answer_start={start} of the context ({hint}); "
                f"correct answer_start, which counts characters from 0, or leave the question out"
            )
        answers.append((text, start))
    return tuple(answers)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _field(row: Any, name: str, kinds: tuple[type, ...], place: str) -> Any:
    if not isinstance(row, Mapping):
        raise TriuneError(f"{place}: expected an object with '{name}', found {type(row).__name__}")
    if name not in row:
        has = ", ".join(map(str, list(row)[:8])) or "no keys"
        raise TriuneError(f"{place}: no '{name}' (it has {has}); the file must have the layout of SQuAD")
    value = row[name]
    if not isinstance(value, kinds) or isinstance(value, bool):
        wanted = {str: "text", int: "a whole number", list: "a list"}.get(kinds[0], "an object")
        raise TriuneError(f"{place}: '{name}' is {type(value).__name__}; it must be {wanted}")
    return value


def _text(row: Any, name: str, place: str) -> str:
    text: str = _field(row, name, (str,), place)
    if not text.strip():
        raise TriuneError(f"{place}: '{name}' is empty; fill it in or leave the question out")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can spell halves of surrogate pairs; tokenizers cannot take them
        raise TriuneError(f"{place}: '{name}' has half a surrogate pair at character {error.start}") from error
    return text


def _file_rows(path: Path) -> Iterator[Placed]:
    name = path.name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    kind = next((suffix for suffix in KINDS if name.removesuffix(compression).endswith(suffix)), "")
    if not kind:
        known = ", ".join(KINDS)
        raise TriuneError(f"'{path}': the suffix is not known; it must be {known}, and .gz, .xz or .zst after that")
    if kind == ".parquet" and not compression:
        return _parquet_rows(path, f"'{path}'")
    with closing(open_stream(path, compression)) as stream:
        data = stream.read()
    if kind == ".parquet":
        return _parquet_rows(io.BytesIO(data), f"'{path}'")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnicodeError("it is UTF-16; convert it to UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    if kind == ".json":
        return _nested_rows(_parse(data, f"'{path}'"), f"'{path}'")
    return _json_rows(data, f"'{path}'")


def _parse(data: bytes, place: str) -> Any:
    text = data.decode("utf-8")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TriuneError(f"{place}: not JSON ({one_line(error)}); is the file complete?") from error


def _json_rows(data: bytes, where: str) -> Iterator[Placed]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield f"{where}, line {number}", _parse(line, f"{where}, line {number}")


def _parquet_rows(file: Path | io.BytesIO, where: str) -> Iterator[Placed]:
    number = 0
    with pyarrow.parquet.ParquetFile(file) as opened:
        names = opened.schema_arrow.names
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise TriuneError(f"{where} has no column '{missing[0]}' (it has {', '.join(names)})")
        read = [*COLUMNS, *(name for name in (IMPOSSIBLE,) if name in names)]
        for batch in opened.iter_batches(batch_size=512, columns=read):
            for row in batch.to_pylist():
                number += 1
                yield f"{where}, row {number}", row


def _nested_rows(content: Any, where: str) -> Iterator[Placed]:
    for number, article in enumerate(_field(content, "data", (list,), where), start=1):
        of_article = f"{where}, article {number}"
        for count, paragraph in enumerate(_field(article, "paragraphs", (list,), of_article), start=1):
            place = f"{of_article}, paragraph {count}"
            context = _text(paragraph, "context", place)
            for asked, row in enumerate(_field(paragraph, "qas", (list,), place), start=1):
                known = isinstance(row, Mapping)
                yield f"{place}, question {asked}", {**row, "context": context} if known else row


def trivia_questions(
    rows: Iterable[Mapping[str, Any]],
    longest_context_chars: int = LONGEST_TRIVIA_CONTEXT,
    where: str = "TriviaQA",
) -> Trivia:
    """Rows as in `mandarjoshi/trivia_qa`, `rc.wikipedia`: a passage of a page around the first alias that occurs.

    An alias counts as whole words, in any case. The first answer is that occurrence, and what to train on; further
    answers are the other spellings in the passage, so that none of them is scored as wrong.
    """
    questions: list[Question] = []
    left_out = 0
    for number, row in enumerate(rows, start=1):
        place = f"{where}, row {number}"
        id = _text(row, "question_id", place)
        place = f"{place} (id '{id}')"
        asked = _text(row, "question", place)
        pages = _field(_field(row, "entity_pages", (Mapping,), place), "wiki_context", (list, tuple), place)
        aliases = [alias for alias in _aliases(row, place) if len(alias) <= longest_context_chars]
        passages = (_passage(page, aliases, id, longest_context_chars, place) for page in pages)
        passage = next(filter(None, passages), None)
        if passage is None:
            left_out += 1
        else:
            questions.append(Question(id, asked, *passage))
    if not questions:
        raise TriuneError(f"{where}: none of {left_out} questions has its answer in a page; is it the test split?")
    return Trivia(questions, left_out)


def _aliases(row: Mapping[str, Any], place: str) -> list[str]:
    answer = _field(row, "answer", (Mapping,), place)
    spellings = [_field(answer, "value", (str,), place), *_field(answer, "aliases", (list, tuple), place)]
    lowered = {_lower(spelling).strip() for spelling in spellings if isinstance(spelling, str)}
    # An alias "The" or "A" would be found on every page; sorted, for the same passage on every run.
    return sorted(alias for alias in lowered if re.search(r"\w", alias) and alias not in ARTICLES)


def _passage(
    page: Any, aliases: list[str], id: str, longest: int, place: str
) -> tuple[str, tuple[tuple[str, int], ...]] | None:
    if not isinstance(page, str):
        raise TriuneError(f"{place}: a page in 'wiki_context' is {type(page).__name__}; it must be text")
    found = _occurrences(page, aliases)
    if not found:
        return None
    start, end = found[0]
    # At a drawn distance before the answer: were it always in the middle, a model would learn to look there.
    begin = max(0, start - int(draw(id, "trivia", 0) * (longest - (end - start))))
    stop = min(len(page), begin + longest)
    if 0 < begin < start and not page[begin - 1].isspace():  # begin and stop between words
        space = re.compile(r"\s").search(page, begin, start)
        begin = space.end() if space else begin
    while end < stop < len(page) and not page[stop].isspace():
        stop -= 1
    context = page[begin:stop]
    distinct: dict[str, int] = {}
    for first, last in _occurrences(context, aliases):
        distinct.setdefault(context[first:last], first)
    answers = ((page[start:end], start - begin), *((text, at) for text, at in distinct.items()))
    return context, tuple(dict.fromkeys(answers))


def _occurrences(text: str, aliases: list[str]) -> list[tuple[int, int]]:
    """Where each alias first stands as whole words; the first place first, and there the longest alias."""
    lowered = _lower(text)
    found = []
    for alias in aliases:
        start = lowered.find(alias)
        while start >= 0:
            end = start + len(alias)
            if not _within_word(text, start) and not _within_word(text, end):
                found.append((start, end))
                break
            start = lowered.find(alias, start + 1)
    return sorted(found, key=lambda span: (span[0], -span[1]))


def _within_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _lower(text: str) -> str:
    """In lower case, character by character: places must stay where they are, and `'İ'.lower()` is two long."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
