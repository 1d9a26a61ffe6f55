"""What the tables take from a record of each study, and whether a record has it in that form."""

from collections.abc import Iterator
from typing import Any

NUMBER, NUMBER_OR_NONE, TEXT, ANY_OBJECT = "a number", "a number or null", "text", "an object"
ANYTHING = None
EACH = "*"  # as the only key of a form: an object with any names, all of one form
ALIKE = "="  # names of lists (or of objects of lists) beside it that must be of one length

# A form is one of the words above, [form] for a list that is not empty, or an object by its names; a name that ends
# in "?" may be missing or null.
_NUMBERS = {EACH: NUMBER}
_MODEL = {"layers": NUMBER, "width": NUMBER, "heads": NUMBER}
_EXAMPLES = {"ids": ANYTHING, "clean": [NUMBER], "area": {EACH: [NUMBER]}, ALIKE: ("clean", "area")}
_HEAD = {"head": NUMBER, "own": NUMBER, "entropy": NUMBER, "negative_share": NUMBER_OR_NONE, "equal?": NUMBER}
_DROPOUTS = {"hidden_dropout": NUMBER_OR_NONE, "attention_dropout": NUMBER_OR_NONE}
_ALL = {"versions?": {EACH: TEXT}}  # in the records of every study
_RUN = dict.fromkeys(
    ("parameters", "steps", "tokens", "train_loss", "validation_loss", "unigram_entropy", "seconds"), NUMBER
)
_RUN["unigram_loss?"] = NUMBER
_FORMS: dict[str, dict[str, Any]] = {
    "pretraining": _RUN,
    "variants": _RUN,
    "rates": {
        "learning_rate": NUMBER,
        "validation_loss?": NUMBER,
        "unigram_entropy?": NUMBER,
        "unigram_loss?": NUMBER,
        "steps?": NUMBER,
    },
    "parameters": {
        "model": _MODEL,
        "heads": [TEXT],
        "operators": {
            EACH: {
                "formula": {EACH: TEXT},
                "layer": _NUMBERS,
                "attention": NUMBER,
                "attention_block": NUMBER,
                "model": {EACH: _NUMBERS},
                "saved": {"attention_without_biases": NUMBER, "attention_block": NUMBER, "model": _NUMBERS},
            }
        },
        "paper?": {"table_4?": {EACH: {"printed": NUMBER, "ours": NUMBER}}, "notes?": [TEXT]},
    },
    "finetuning": {
        "model": TEXT,
        "seed": NUMBER,
        "task_title": TEXT,
        "metric": TEXT,
        "metric_title": TEXT,
        "primary": NUMBER,
        "scores": _NUMBERS,
        "more_scores?": {EACH: _NUMBERS},
        "recipe": {"training": ANY_OBJECT, "optimizer": {"learning_rates": [NUMBER]}, "model": _DROPOUTS},
        "train_rows": NUMBER,
        "dev_rows": NUMBER,
        "parameters": NUMBER,
    },
    "noise": {
        "model": TEXT,
        "seed": NUMBER,
        "task_title": TEXT,
        "settings": {"levels": [NUMBER], "rates": [NUMBER]},
        "clean": NUMBER,
        "curves": {EACH: [{"level": NUMBER, "scores": [NUMBER]}]},
        "area": _NUMBERS,
        "retention": {EACH: NUMBER_OR_NONE},
        "dev_rows": NUMBER,
        "examples?": _EXAMPLES,
    },
    "transfer": {
        "model": TEXT,
        "seed": NUMBER,
        "source_title": TEXT,
        "targets": [
            {
                "target": TEXT,
                "mapping": TEXT,
                "title": TEXT,
                "score": NUMBER,
                "majority": NUMBER,
                "rows": NUMBER,
                "ids": ANYTHING,
                "right": [NUMBER],
            }
        ],
    },
    "time": {
        "task_title": TEXT,
        "reference": TEXT,
        "rows": NUMBER,
        "mean_tokens": NUMBER,
        "model": _MODEL | {"feed_forward": NUMBER},
        "contestants": [
            {
                "model": TEXT,
                "operator": TEXT,
                "how?": TEXT,
                "seconds": [NUMBER],
                "median": NUMBER,
                "ratio": NUMBER,
                "flop_ratio": NUMBER,
            }
        ],
    },
    "inspect": {
        "model": TEXT,
        "texts": NUMBER,
        "tokens": NUMBER,
        "repeated?": {"tokens": NUMBER, "even": NUMBER_OR_NONE},
        "layers": [
            {
                "layer": NUMBER,
                "score_symmetry": NUMBER_OR_NONE,
                "score_scale?": {"sorted": [NUMBER], "negative_share": NUMBER},
                "distance?": {EACH: NUMBER_OR_NONE},  # null for a role that has no vector
                "sign_changes?": {EACH: NUMBER_OR_NONE},  # null too where signs were drawn and nobody knows which
                "heads": [_HEAD],
                "head_similarity": [[NUMBER_OR_NONE]],
                ALIKE: ("heads", "head_similarity"),
            }
        ],
    },
    "ablations": {
        "reference": TEXT,
        "seeds": [NUMBER],
        "steps": NUMBER,
        "tokens": NUMBER,
        "unigram_entropy": NUMBER,
        "unigram_loss?": NUMBER,
        "missing?": [TEXT],
        "variants": [
            {
                "name": TEXT,
                "against?": TEXT,
                "parameters": NUMBER,
                "validation_loss": NUMBER,
                "validation_losses": [NUMBER],
                "deviation": NUMBER_OR_NONE,
                "p_holm": NUMBER_OR_NONE,
            }
        ],
    },
}


def wrong_form(study: str, record: dict[str, Any]) -> str | None:
    """The first thing in the record that its tables could not be made from, in words."""
    wrong = next(_wrong(record, _FORMS[study] | _ALL, ""), None)
    if wrong is None and study == "transfer":
        counts = [(number, len(one["right"]), one["rows"]) for number, one in enumerate(record["targets"])]
        wrong = next(
            (f"'targets[{n}].right' has {has} values for {rows} rows" for n, has, rows in counts if has != rows), None
        )
    if wrong is None and study == "ablations":
        names = [one["name"] for one in record["variants"]]
        compared = [record["reference"], *(one.get("against") or names[0] for one in record["variants"])]
        wrong = next((f"there is no variant '{name}'" for name in compared if name not in names), None)
    return wrong


def _wrong(value: Any, form: Any, name: str) -> Iterator[str]:
    if isinstance(form, list):
        if not isinstance(value, list) or not value:
            yield f"'{name}' is no list with something in it"
            return
        for number, inner in enumerate(value):
            yield from _wrong(inner, form[0], f"{name}[{number}]")
    elif isinstance(form, dict) or form == ANY_OBJECT:
        if not isinstance(value, dict):
            yield f"'{name}' is not {ANY_OBJECT}"
        elif isinstance(form, dict):
            yield from _wrong_inside(value, form, f"{name}." if name else "")
    elif form in (NUMBER, NUMBER_OR_NONE):
        if not isinstance(value, (int, float)) and (form == NUMBER or value is not None):
            yield f"'{name}' is not {form}"
    elif form == TEXT and not isinstance(value, str):
        yield f"'{name}' is not {TEXT}"


def _wrong_inside(value: dict[str, Any], form: dict[str, Any], prefix: str) -> Iterator[str]:
    if EACH in form:
        for key, inner in value.items():
            yield from _wrong(inner, form[EACH], f"{prefix}{key}")
        return
    for key, inner in form.items():
        plain = key.removesuffix("?")
        if key == ALIKE or (key != plain and value.get(plain) is None):
            continue
        if plain not in value:
            yield f"'{prefix}{plain}' is missing"
            return
        yield from _wrong(value[plain], inner, f"{prefix}{plain}")
    first, *others = form.get(ALIKE, ("",))
    for other in others:
        lists = value[other].values() if isinstance(value[other], dict) else [value[other]]
        if any(len(one) != len(value[first]) for one in lists):
            yield f"'{prefix}{other}' and '{prefix}{first}' are not of one length"
