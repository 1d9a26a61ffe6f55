"""WordPiece tokenizers: trained on text, the same each time, and loaded with one-line errors."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from triune.data.folders import refuse_something_else, replaced_folder
from triune.data.sources import ReadCounts, Source, as_sources
from triune.data.text import taken_documents
from triune.errors import TriuneError, one_line

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 … 4
SPECIAL_PARTS = ("pad", "unk", "cls", "sep", "mask")
CONTINUES = "##"
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt")
VOCABULARIES = ("vocab*", "*.model")  # of tokenizers without a tokenizer.json, which transformers makes fast
SMALLEST_VOCABULARY = 200
LARGEST_ALPHABET = 1000  # as in BERT's own trainer; a small vocabulary gives at most a tenth to single characters


def train_tokenizer(
    sources: Source | str | Path | Iterable[Source | str | Path],
    vocab_size: int,
    out: str | Path,
    lowercase: bool = True,
    min_frequency: int = 2,
    seed: int = 1,
    say: Callable[[str], object] = lambda line: None,
) -> Path:
    """Train a WordPiece vocabulary and save a BERT tokenizer; the same text gives the same files.

    `tokenizers` numbers continuing characters (`##c`) in the order of a hash table that differs from run to run, and
    breaks ties between merges by those numbers. So the text is read twice: first for its characters, which are handed
    to the trainer in a fixed order, then for its words. `seed` matters where sources have fractional weights.
    `say` gets a line for each source: what was read of it, and what could not be. A tokenizer in `out` is replaced, a
    folder with anything else in it is refused: the tokenizer of a model is that model's.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    if vocab_size < SMALLEST_VOCABULARY:
        raise TriuneError(f"vocab_size={vocab_size} is too small for WordPiece; at least {SMALLEST_VOCABULARY}")
    refuse_something_else(Path(out), FILES)
    given = as_sources(sources)
    draft = Tokenizer(models.WordPiece({}, unk_token="[UNK]"))
    draft.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    draft.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts = [ReadCounts() for _ in given]
    alphabet = _alphabet(_texts(given, seed, counts), draft, vocab_size, min_frequency)
    for source, count in zip(given, counts, strict=True):
        say(f"{source.where}: {count.report()}")
    inner = sorted(c for c in alphabet if _continues_words(c, draft))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIALS, *(CONTINUES + c for c in inner)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    draft.train_from_iterator(_texts(given, seed, [ReadCounts() for _ in given]), trainer)
    return _save(_in_order(draft.get_vocab(), alphabet, inner), lowercase, Path(out))


def _texts(sources: list[Source], seed: int, counts: list[ReadCounts]) -> Iterator[str]:
    for source, count in zip(sources, counts, strict=True):
        for text, _ in taken_documents(source, count, seed):
            yield text


def _alphabet(texts: Iterable[str], draft: Any, vocab_size: int, min_frequency: int) -> list[str]:
    """The characters that words are made of: the most frequent ones, ties in the order of Unicode, sorted."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    if not raw:
        raise TriuneError("the sources hold no text to train a tokenizer on")
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for word, _ in draft.pre_tokenizer.pre_tokenize_str(draft.normalizer.normalize_str(character)):
            for part in word:
                counts[part] += count
    limit = min(LARGEST_ALPHABET, max(64, vocab_size // 20))
    frequent = sorted((c for c in counts if counts[c] >= min_frequency), key=lambda c: (-counts[c], c))
    return sorted(frequent[:limit])


def _continues_words(character: str, draft: Any) -> bool:
    """Punctuation and Chinese characters always stand alone: a `##` form of them would be a wasted entry."""
    return bool(len(draft.pre_tokenizer.pre_tokenize_str(draft.normalizer.normalize_str("a" + character))) == 1)


def _in_order(vocabulary: dict[str, int], alphabet: list[str], inner: list[str]) -> dict[str, int]:
    """Special tokens, characters, continuing characters, then the merges in the order in which they were found."""
    first = [*SPECIALS, *alphabet, *(CONTINUES + c for c in inner)]
    known = set(first)
    merged = sorted((piece for piece in vocabulary if piece not in known), key=vocabulary.__getitem__)
    return {piece: number for number, piece in enumerate([*first, *merged])}


def _save(vocabulary: dict[str, int], lowercase: bool, out: Path) -> Path:
    """Built anew from the vocabulary, so that nothing is left of how it was trained."""
    from transformers import BertTokenizer

    tokenizer = BertTokenizer(vocab=vocabulary, do_lower_case=lowercase)
    with replaced_folder(out) as beside:
        write_tokenizer(tokenizer, beside)
        (beside / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
    return out


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """`save_pretrained`, with a full disk as an OSError: `tokenizers` raises a bare Exception that only says so."""
    try:
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:
        raise OSError(one_line(error)) from error


def load_tokenizer(name: str | Path) -> Any:
    """A fast tokenizer with BERT's special tokens, from a folder, a folder with only vocab.txt, or the hub."""
    from transformers import AutoTokenizer

    folder = Path(name).expanduser()
    if folder.is_dir() and not (folder / "tokenizer.json").exists():
        if not (folder / "tokenizer_config.json").exists() and (folder / "vocab.txt").exists():
            return _checked(_from_vocabulary(folder / "vocab.txt"), name)
        if not any(any(folder.glob(pattern)) for pattern in VOCABULARIES):
            if (folder / "config.json").exists():
                raise TriuneError(
                    f"the model in '{name}' has no tokenizer beside it: save the one that it was trained with there, "
                    f"by tokenizer.save_pretrained('{name}')"
                )
            raise TriuneError(f"'{name}' is not a tokenizer's folder: it has no tokenizer.json and no vocab.txt")
    elif not folder.exists() and (str(name).count("/") > 1 or str(name).startswith((".", "/", "~"))):
        raise TriuneError(f"there is no tokenizer folder '{name}'")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else str(name))
    except Exception as error:  # OSError, ValueError, hub errors, and whatever a damaged tokenizer.json brings up
        what = f"cannot load tokenizer '{name}'"
        if not folder.is_dir():
            what = f"there is no folder '{name}' here, and {what} from the hub"
        raise TriuneError(f"{what}: {one_line(error)}") from error
    return _checked(tokenizer, name)


def _from_vocabulary(path: Path) -> Any:
    from transformers import BertTokenizer

    try:
        pieces = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeError) as error:
        raise TriuneError(f"cannot read '{path}': {one_line(error)}") from error
    pieces = pieces[:-1] if pieces[-1] == "" else pieces
    missing = [token for token in SPECIALS if token not in pieces]
    if missing:
        raise TriuneError(f"'{path}' is not a BERT vocabulary: it lacks {', '.join(missing)}")
    cased = any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
    vocabulary = {piece.removesuffix("\r"): number for number, piece in enumerate(pieces)}
    return BertTokenizer(vocab=vocabulary, do_lower_case=not cased)


def _checked(tokenizer: Any, name: str | Path) -> Any:
    if not getattr(tokenizer, "is_fast", False):
        raise TriuneError(f"tokenizer '{name}' has no fast version, which packing needs")
    missing = [part for part in SPECIAL_PARTS if getattr(tokenizer, f"{part}_token_id") is None]
    if missing:
        raise TriuneError(
            f"tokenizer '{name}' lacks special tokens that masked language models need: {', '.join(missing)}"
        )
    return tokenizer


def describe_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Size, special ids, and checksums of the vocabulary and of the rules that lead to it."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    special_ids = {part: getattr(tokenizer, f"{part}_token_id") for part in SPECIAL_PARTS}
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    rules = {key: parts[key] for key in ("normalizer", "pre_tokenizer", "added_tokens")}
    rules["model"] = {key: value for key, value in parts["model"].items() if key != "vocab"}
    rules["special_ids"] = special_ids
    in_order = sorted(vocabulary, key=vocabulary.__getitem__)
    return {
        "vocab_size": max(vocabulary.values()) + 1,
        "special_ids": special_ids,
        "vocabulary_sha256": hashlib.sha256("\n".join(in_order).encode()).hexdigest(),
        "rules_sha256": hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest(),
    }


def word_starts(tokenizer: Any, vocab_size: int) -> np.ndarray:
    """For each id, 1 where the piece begins a word: not `##…` in WordPiece, `Ġ…` or `▁…` in BPE and unigram models."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    marked = not any(piece.startswith(CONTINUES) for piece in vocabulary)
    special = set(tokenizer.all_special_ids)
    starts = np.ones(vocab_size, dtype=np.uint8)
    for piece, number in vocabulary.items():
        begins = piece.startswith(("Ġ", "▁")) if marked else not piece.startswith(CONTINUES)
        starts[number] = begins or number in special
    return starts
