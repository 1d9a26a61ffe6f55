"""Verbs that make data: the pocket benchmark, tokenizers, prepared blocks."""

from pathlib import Path
from typing import Annotated, Any

import typer

SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        help="Files (.txt, .jsonl, .parquet, each also .gz, .xz, .zst), folders, globs in quotes, or hub:NAME[:CONFIG"
        "[:SPLIT]]. SOURCE@2 takes a source twice, SOURCE@0.5 half of it.",
        metavar="SOURCE...",
    ),
]
DocumentOption = Annotated[
    str, typer.Option(help="What separates documents in .txt files: blank-line or line.", metavar="KIND")
]
FieldOption = Annotated[str, typer.Option(help="Where the text is in .jsonl, .parquet and hub data sets.")]


def add_to(app: typer.Typer) -> None:
    app.command("pocket")(pocket)
    app.command("tokenizer")(tokenizer)
    app.command("prepare")(prepare)


def pocket(
    out: Annotated[Path, typer.Argument(help="Folder to write to.")],
    seed: Annotated[int, typer.Option(help="Another seed gives another world of the same kind.")] = 1,
    documents: Annotated[
        int | None, typer.Option(help="Documents in the corpus. (default: enough for pocket.yaml)")
    ] = None,
) -> None:
    """Generate the pocket benchmark: a corpus and tasks in GLUE's and SQuAD's shapes, about a small made-up world."""
    from triune.data.pocket import DEFAULT_DOCUMENTS, write_pocket

    manifest = write_pocket(out, seed, DEFAULT_DOCUMENTS if documents is None else documents)
    if manifest["reused"]:
        print(f"{out}: there already and current")
    else:
        print(f"{out}: written, {len(manifest['files'])} files, seed {seed}")


def tokenizer(
    sources: SourcesArgument,
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    vocab_size: Annotated[int, typer.Option(help="Number of word pieces.")] = 30522,
    lowercase: Annotated[bool, typer.Option(help="Uncased, as the paper's.")] = True,
    document: DocumentOption = "blank-line",
    text_field: FieldOption = "text",
) -> None:
    """Train a WordPiece tokenizer; the same text gives the same vocabulary."""
    from triune.data.tokenizer import load_tokenizer, train_tokenizer

    folder = train_tokenizer(_sources(sources, document, text_field), vocab_size, out, lowercase, say=print)
    print(f"{folder}: {len(load_tokenizer(folder)):,} word pieces")


def prepare(
    sources: SourcesArgument,
    tokenizer: Annotated[str, typer.Option(help="Folder or hub name of a tokenizer.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    block_length: Annotated[int, typer.Option(help="Tokens in a block.")] = 128,
    span_documents: Annotated[bool, typer.Option(help="A block may hold more than one document.")] = True,
    valid_fraction: Annotated[float, typer.Option(help="Share of the documents that is held out.")] = 0.01,
    valid: Annotated[
        list[str] | None, typer.Option(help="Held-out text from a source of its own; may be given several times.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. (default: one a core)")] = None,
    document: DocumentOption = "blank-line",
    text_field: FieldOption = "text",
) -> None:
    """Tokenise text into blocks on disk, ready for `triune pretrain`; a second run reuses what is current."""
    from triune.data.prepare import prepare as run

    manifest = run(
        _sources(sources, document, text_field),
        tokenizer,
        out,
        block_length,
        span_documents=span_documents,
        valid_fraction=valid_fraction,
        valid_sources=_sources(valid or [], document, text_field),
        workers=workers,
        say=print,
    )
    for line in manifest.report():
        print(line)
    print(f"{out}: " + ("there already and current" if manifest.reused else "prepared"))


def _sources(given: list[str], document: str, text_field: str) -> list[Any]:
    from triune.data.sources import source_from

    return [source_from(text, document, text_field) for text in given]
