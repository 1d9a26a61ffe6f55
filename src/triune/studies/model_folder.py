"""From a pre-training run to a folder that others can use: small weights, tokenizer, and a card."""

from pathlib import Path
from typing import Any

import torch

from triune.data.folders import may_replace, replaced_folder
from triune.data.manifest import Manifest
from triune.data.tokenizer import FILES as TOKENIZER_FILES
from triune.data.tokenizer import write_tokenizer
from triune.errors import TriuneError
from triune.files import write_text
from triune.models.heads import TriuneForMaskedLM
from triune.models.locate import WEIGHTS, locate_model, tokenizer_of
from triune.presence import MODEL, SUMMARY, diverged, has_weights
from triune.report.gather import gather
from triune.report.pretraining import run_record
from triune.report.published_card import MARK, Counted, Said, published_card
from triune.training.run_folder import is_finished

CARD = "README.md"
WRITTEN = {CARD, WEIGHTS, "config.json", *TOKENIZER_FILES}


def publish_model(run: Path, folder: Path, said: Said, data: Path | None = None, scores: Path | None = None) -> int:
    """Write the model of a finished run to `folder`; gives the bytes of the weights. A published one is replaced."""
    _check_target(folder)
    record = _finished(run)
    manifest = None if data is None else _manifest_of(record, run, data)
    trained = locate_model(str(run / MODEL))
    model = TriuneForMaskedLM.from_pretrained(trained.path, dtype=torch.bfloat16)
    tokenizer = tokenizer_of(trained)
    tokenizer.model_max_length = model.config.max_position_embeddings  # where pipelines cut longer texts
    with replaced_folder(folder) as beside:
        model.save_pretrained(beside, max_shard_size="1TB")  # in one file
        write_tokenizer(tokenizer, beside)
        sums = {trained.sha256, locate_model(str(beside)).sha256}
        found = [] if scores is None else _scores_of(sums, scores)
        size = (beside / WEIGHTS).stat().st_size
        attention = model.base_model.encoder.layer[0].attention.self
        counted = Counted(
            model.num_parameters(),
            sum(one.numel() for one in attention.parameters()),
            model.config.vocab_size,
            size,
        )
        card = published_card(folder.resolve().name, record, said, counted, manifest, found)
        write_text(beside / CARD, card)
    return size


def _check_target(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise TriuneError(f"'{folder}' is not a folder: choose another")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        published = may_replace(folder, WRITTEN) and MARK in (folder / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        published = False
    if not published:
        raise TriuneError(f"'{folder}' holds something else than a published model: give an empty or new folder")


def _finished(run: Path) -> dict[str, Any]:
    if not is_finished(run):
        raise TriuneError(f"'{run}' is not a finished run of `triune pretrain`: it has no {SUMMARY}")
    if said := diverged(run / SUMMARY):
        raise TriuneError(f"'{run}' has no model to publish: {said}")
    if not has_weights(run / MODEL):
        raise TriuneError(f"'{run}' has lost its weights: there are none in '{run / MODEL}'")
    return run_record(run)


def _manifest_of(record: dict[str, Any], run: Path, data: Path) -> Manifest:
    manifest = Manifest.load(data)
    if {name: file["sha256"] for name, file in manifest.files.items()} != record["data"]:
        raise TriuneError(f"'{run}' was not trained on '{data}': the checksums differ; give the data of the run")
    return manifest


def _scores_of(sums: set[str], folder: Path) -> list[dict[str, Any]]:
    """The fine-tunings of this very model; others there are left out."""
    ours = [one for one in gather([folder])["finetuning"] if one.get("model_sha256") in sums]
    if not ours:
        raise TriuneError(
            f"'{folder}' holds no record of a fine-tuning of this model: no checksum is that of its weights"
        )
    if len({one["model"] for one in ours}) > 1:
        names = ", ".join(sorted({one["model"] for one in ours}))
        raise TriuneError(f"'{folder}' holds this model under several names ({names}): give the records of one")
    return ours
