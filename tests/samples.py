"""Small models and small data for everything that is fine-tuned; see the fixture `samples`."""

import csv
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# A fine-tuning run that takes a fraction of a second.
QUICK = [
    "data.max_length=32",
    "training.batch=8",
    "training.epochs=2",
    "training.precision=float32",
    "optimizer.learning_rates=[1e-2]",
    "search.learning_rates=[]",
]
GOOD, BAD = ["good", "fine", "lovely", "great"], ["bad", "awful", "poor", "sad"]
THINGS = ["cat", "dog", "song", "book", "film", "house", "river", "bread"]


@dataclass(frozen=True)
class Samples:
    """What `make_samples` wrote."""

    tokenizer: Path
    standard: Path  # masked-LM models with their tokenizer
    shared: Path
    data: Path  # glue/… and squad/…
    train: Path  # a table of one's own: text, label (bad or good)
    dev: Path


def review(draw: random.Random, good: bool) -> str:
    return f"the {draw.choice(THINGS)} was {draw.choice(GOOD if good else BAD)}" + " indeed" * draw.randint(0, 6)


def write_csv(path: Path, rows: list[list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def reviews(path: Path, count: int, seed: int) -> Path:
    draw = random.Random(seed)
    labels = [i % 2 == 0 for i in range(count)]
    return write_csv(path, [["text", "label"], *([review(draw, y), "good" if y else "bad"] for y in labels)])


def pairs(path: Path, columns: tuple[str, str], classes: int, count: int, seed: int, hidden: bool = False) -> None:
    """The class is how far the second thing is from the first, in the list of things."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        first, label = draw.randrange(len(THINGS)), number % classes
        texts = (f"one {THINGS[first]}" + " and so on" * (number % 4), THINGS[(first + label) % len(THINGS)])
        rows.append({columns[0]: texts[0], columns[1]: texts[1], "label": -1 if hidden else label, "idx": number})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def likeness(path: Path, count: int, seed: int, hidden: bool = False) -> None:
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = draw.choice([0.0, 2.5, 5.0])
        second = review(draw, label > 3) + " mostly" * (label == 2.5)
        rows.append({"sentence1": "a good one", "sentence2": second, "label": -1.0 if hidden else label, "idx": number})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def questions(path: Path, count: int, seed: int, unanswerable: bool) -> None:
    draw = random.Random(seed)
    paragraphs = []
    for number in range(count):
        thing, word = draw.choice(THINGS), draw.choice(GOOD)
        context = "so it goes " * draw.randint(0, 12) + f"the {thing} was {word} in the end"
        without = unanswerable and number % 3 == 0
        asked = draw.choice([other for other in THINGS if other != thing]) if without else thing
        answers = [] if without else [{"text": word, "answer_start": context.index(word)}]
        question = {"id": f"q{number}", "question": f"how was the {asked}?", "answers": answers}
        paragraphs.append({"context": context, "qas": [question | {"is_impossible": without}]})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "", "data": [{"title": "all", "paragraphs": paragraphs}]}))


def make_samples(folder: Path) -> Samples:
    from triune import TriuneForMaskedLM
    from triune.data.tokenizer import load_tokenizer, train_tokenizer
    from triune.testing import small_config

    data = folder / "data"
    for name, columns, classes in (
        ("rte", ("sentence1", "sentence2"), 2),
        ("mnli", ("premise", "hypothesis"), 3),
        ("qnli", ("question", "sentence"), 2),
        ("mrpc", ("sentence1", "sentence2"), 2),
    ):
        for seed, (split, count) in enumerate(
            {"train": 32, "dev": 12, "dev_mismatched": 9, "test": 7, "test_mismatched": 6}.items()
        ):
            if name == "mnli" or "mismatched" not in split:
                path = data / "glue" / name / f"{split}.parquet"
                pairs(path, columns, classes, count, seed, hidden="test" in split)
    for seed, (split, count) in enumerate({"train": 32, "dev": 12, "test": 7}.items()):
        likeness(data / "glue" / "stsb" / f"{split}.parquet", count, seed, hidden=split == "test")
    for seed, (split, count) in enumerate({"train": 24, "dev": 12}.items()):
        questions(data / "squad" / "v1.1" / f"{split}.json", count, seed, unanswerable=False)
        questions(data / "squad" / "v2.0" / f"{split}.json", count, seed, unanswerable=True)
    train, dev = reviews(folder / "train.csv", 48, 0), reviews(folder / "dev.csv", 16, 1)
    words = [*GOOD, *BAD, *THINGS, "the was indeed one and so on a mostly it goes in end how ?"]
    (folder / "text.txt").write_text("\n\n".join([" ".join(words)] * 20))
    tokenizer = load_tokenizer(train_tokenizer(folder / "text.txt", 200, folder / "tokenizer"))
    for operator in ("standard", "shared"):
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        config = small_config(operator, vocab_size=len(tokenizer), max_position_embeddings=64, **sizes, **dropout)
        TriuneForMaskedLM(config).save_pretrained(folder / operator)
        tokenizer.save_pretrained(folder / operator)
    return Samples(folder / "tokenizer", folder / "standard", folder / "shared", data, train, dev)


def sets(*overrides: str) -> list[str]:
    return [part for override in (*QUICK, *overrides) for part in ("--set", override)]


def glue_arguments(samples: Samples, out: Path, *overrides: str, task: str = "rte") -> list[str]:
    """Arguments of the command that fine-tunes both models on a task of the data folder."""
    models = [str(samples.standard), str(samples.shared)]
    return ["finetune", *models, "--task", task, "--data-dir", str(samples.data), "--out", str(out), *sets(*overrides)]


def own_arguments(samples: Samples, out: Path, *overrides: str) -> list[str]:
    files = ["--train", str(samples.train), "--dev", str(samples.dev), "--text", "text", "--label", "label"]
    return ["finetune", str(samples.shared), *files, "--out", str(out), "--workers", "1", *sets(*overrides)]
