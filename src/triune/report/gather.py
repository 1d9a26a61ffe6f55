"""Records of every study under any folders, told apart by what they hold and not by where they lie."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from triune import operators
from triune.data.tasks import POCKET
from triune.errors import TriuneError, one_line, shown
from triune.evaluation.comparing import DEV, SCORES, Started, compare_records, started_beside, started_from
from triune.evaluation.significance import Comparison
from triune.presence import RECORD, RUN, SUMMARY, diverged, read
from triune.report import planned
from triune.report.noise import noise_comparisons
from triune.report.pretraining import run_record
from triune.report.shapes import wrong_form
from triune.report.task_name import is_pocket
from triune.report.transfer import transfer_comparisons
from triune.training.run_folder import METRICS

Record = dict[str, Any]

ABLATIONS = "ablations"
# In the order in which the page lists records; variants are the pre-training runs behind the ablations.
STUDIES = (
    "parameters",
    "rates",
    "pretraining",
    "finetuning",
    "noise",
    "transfer",
    "time",
    "inspect",
    "ablations",
    "variants",
    planned.STUDY,
)

# What a record of a study must hold for its tables to be made, and what tells two records of it apart.
_NEEDED = {
    study: tuple(names.split())
    for study, names in {
        "parameters": "model heads operators",
        "finetuning": "task task_title kind model operator seed metric metric_title scores primary recipe epochs "
        "max_length parameters train_rows train_source dev_rows subset device attention",
        "noise": "task task_title metric_title model operator seed settings clean curves area retention dev_rows "
        "subset",
        "transfer": "source source_title model operator seed targets",
        "time": "task task_title contestants rounds reference model rows batch mean_tokens precision subset device",
        "inspect": "model operator layers start texts tokens source",
        "ablations": "variants reference seeds steps tokens unigram_entropy",
        "rates": "operator learning_rate",
        planned.STUDY: "operators tasks pretraining_seeds finetuning_seeds",
    }.items()
}
_KEYS = {
    "rates": ("label", "learning_rate"),
    "pretraining": ("label", "seed"),
    "variants": ("label", "seed"),
    "finetuning": ("task", "model", "seed"),
    "noise": ("task", "model", "seed"),
    "transfer": ("source", "model", "seed"),
    "time": ("task",),
    "inspect": ("model",),
}
# Folders that hold models, tokenizers, blocks or data are known by these files in them, and are not looked into.
_NO_RECORDS = ("config.json", "tokenizer.json", "manifest.json", "seal.json", POCKET)
_SEARCH = re.compile(r"search-(.+?)(?:-from-\d+)?")
_NAME = (str, int, float)  # what tells records apart
_BESIDE = (SUMMARY, SCORES, "records.json")  # read with the record that they belong to, or made from records


@dataclass
class Gathered:
    studies: dict[str, list[Record]] = field(default_factory=lambda: {name: [] for name in STUDIES})
    notes: list[str] = field(default_factory=list)  # what was left out, and why
    roots: list[Path] = field(default_factory=list)
    pocket: bool = False  # the data are those of the generated world
    # Folders with (label, seed) of pre-trainings and (task, label, seed) of fine-tunings that ended in no finite loss.
    diverged: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    # Rates that were tried before fine-tuning, by task and model.
    searched: dict[tuple[str, str], set[float]] = field(default_factory=dict)

    def __getitem__(self, study: str) -> list[Record]:
        return self.studies[study]

    def all(self) -> list[Record]:
        return [record for records in self.studies.values() for record in records]

    @cached_property
    def models(self) -> dict[str, str]:
        """Every model by its label, in the order of the paper, with its operator."""
        found: dict[str, str] = {run["label"]: run["operator"] for run in self["pretraining"]}
        for study in ("finetuning", "noise", "transfer", "inspect"):
            found |= {record["model"]: record["operator"] for record in self[study]}
        for record in self["time"]:
            found |= {one["model"]: one["operator"] for one in record["contestants"] if one["model"] not in found}
        return {label: found[label] for label in operators.in_order(found)}

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Paired tests between fine-tuned models: every other model against standard, on every task."""
        return self._withheld(compare_records(Path(), self["finetuning"]) if self["finetuning"] else [])

    @cached_property
    def started(self) -> Started:
        """The pre-trained model that each fine-tuned one started from."""
        return {**started_beside([*self["noise"], *self["transfer"]]), **started_from(self["finetuning"])}

    @cached_property
    def planned_tasks(self) -> list[str] | None:
        """Of all plans that there are."""
        plans = self[planned.STUDY]
        return list(dict.fromkeys(task for plan in plans for task in plan["tasks"])) if plans else None

    @cached_property
    def planned_rates(self) -> list[float]:
        """The grid of the search of rates, of all plans that there are."""
        return sorted({rate for plan in self[planned.STUDY] for rate in plan.get(planned.RATES, [])})

    @cached_property
    def waits_for(self) -> str | None:
        """In words, what there is of what was planned; None where that is all, or where there is no plan."""
        missing = []
        for plan in self[planned.STUDY]:

            def beside(folder: str, root: str = plan["folder"]) -> bool:
                return Path(folder).is_relative_to(root)

            rates, runs, tuned = (
                [one for one in self[study] if beside(one["folder"])]
                for study in ("rates", "pretraining", "finetuning")
            )
            lost = [what for folder, what in self.diverged.items() if beside(folder)]
            if (counts := planned.still_missing(plan, rates, runs, tuned, lost)) is not None:
                missing.append(counts)
        return planned.in_words(missing)

    @cached_property
    def noise_comparisons(self) -> list[Comparison]:
        return self._withheld(noise_comparisons(self["noise"], self.started) if self["noise"] else [])

    @cached_property
    def transfer_comparisons(self) -> list[Comparison]:
        return self._withheld(transfer_comparisons(self["transfer"], self.started) if self["transfer"] else [])

    def _withheld(self, compared: list[Comparison]) -> list[Comparison]:
        """As long as the study is under way, the differences alone."""
        if self.waits_for is None:
            return compared
        nothing: dict[str, Any] = {"p_seeds": None, "p_mcnemar": None, "p": None, "p_holm": None, "interval": None}
        nothing |= {"better": None, "corrected_for": 0, "verdict": "not tested yet"}
        return [replace(one, **nothing) for one in compared]


def gather(roots: Sequence[Path]) -> Gathered:
    """All records under the folders, each with the `file` that it came from; two of the same thing are an error."""
    found = Gathered(roots=list(roots))
    seen: set[Path] = set()
    for root, prefix in zip(roots, _prefixes(roots), strict=True):
        if not root.is_dir():
            raise TriuneError(f"'{shown(root, None)}' is not a folder: give folders with results")
        for path in _json_files(root, found):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                _take(path, prefix + path.relative_to(root).as_posix(), found)
    if not any(record["study"] != planned.STUDY for record in found.all()):
        where = ", ".join(f"'{shown(root, None)}'" for root in roots)
        raise TriuneError(f"no records under {where}: make some with `triune reproduce`, or give another folder")
    for study, records in found.studies.items():
        _check_double(study, records)
        order = {label: number for number, label in enumerate(found.models)}
        records.sort(key=lambda one: _place(one, order))
    found.pocket = found.pocket or any(map(is_pocket, found["finetuning"]))
    return found


def _prefixes(roots: Sequence[Path]) -> list[str]:
    """Nothing for one folder; for several their names, made different where they are the same."""
    if len(roots) == 1:
        return [""]
    names = [root.resolve().name for root in roots]
    return [
        f"{name}/" if names.count(name) == 1 else f"{name} ({names[: number + 1].count(name)})/"
        for number, name in enumerate(names)
    ]


def _json_files(root: Path, found: Gathered) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        raise TriuneError(f"cannot look into '{error.filename}': {error.strerror}") from error

    for folder, folders, files in os.walk(root, onerror=unreadable):
        found.pocket = found.pocket or POCKET in files
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if any(name in files for name in _NO_RECORDS):
            folders[:] = []
            continue
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(".json"))


def _take(path: Path, file: str, found: Gathered) -> None:
    if path.name == RUN:
        _take_run(path.parent, file, found)
        return
    if (path.name in _BESIDE and not _is_of_search(path)) or path.name.startswith(Path(DEV).stem):
        return
    record = _read(path, file, found)
    study = _study(path, record)
    if record is not None and (searched := _searched_rate(path)) is not None:  # no result, nor what diverged in it
        task, model = path.resolve().parts[-4:-2]
        found.searched.setdefault((task, model), set()).add(searched)
        return
    if path.name == planned.FILE and study != planned.STUDY:
        raise TriuneError(f"'{path}' is not the plan of a study: remove it, and `triune reproduce` writes it again")
    if record is None or study is None:
        if record is not None:
            found.notes.append(f"{file}: no record of a study, left out")
        return
    if study == "finetuning" and "diverged" in record:
        found.notes.append(f"{file}: diverged ({shown(record['diverged'], None)}), in no table")
        folders = path.resolve().parts
        found.diverged[str(path.resolve().parent)] = (folders[-4], folders[-3], _number(folders[-2]))
        return
    missing = [name for name in _NEEDED[study] if name not in record]
    if missing:
        raise TriuneError(f"'{path}' is a record of the study '{study}' without '{missing[0]}': remove or remake it")
    strange = [name for name in (*_KEYS.get(study, ()), "operator") if not isinstance(record.get(name, ""), _NAME)]
    if strange:
        raise TriuneError(f"'{path}': '{strange[0]}' is neither a name nor a number: remove or remake it")
    _check_form(study, record, path)
    label = {"label": path.resolve().parent.parent.name} if study == "rates" else {}
    found[study].append({**record, **label, "study": study, "file": file, "folder": str(path.parent.resolve())})


def _searched_rate(path: Path) -> float | None:
    """Of a run that was made to find a rate of fine-tuning: its folder is called by it."""
    found = _SEARCH.fullmatch(path.parent.name)
    try:
        return float(found.group(1)) if found and path.name == RECORD else None
    except ValueError:
        return None


def _is_of_search(path: Path) -> bool:
    """Whether it is the summary of a run that was made to find a rate: of such a run nothing else is kept."""
    if path.name != SUMMARY or (path.parent / RUN).exists():
        return False
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return isinstance(record, dict) and record.get("study") == "rates"
    except (OSError, ValueError):
        return False  # reproduce makes it again


def _take_run(run: Path, file: str, found: Gathered) -> None:
    folders = file.split("/")[:-1]
    is_variant = ABLATIONS in folders or any(map(_holds_ablations, run.parents[:2]))
    if said := diverged(run / SUMMARY):
        found.notes.append(f"{file}: diverged ({shown(said, None)}), in no table")
        seeded, folder = run.name.startswith("seed-"), run.resolve()
        label, seed = (folder.parent.name, _number(folder.name)) if seeded else (folder.name, 1)
        if not is_variant:  # variants may be called as operators are
            found.diverged[str(folder)] = (label, seed)
        return
    if not (run / SUMMARY).is_file() or not (run / METRICS).is_file():
        found.notes.append(f"{file}: a pre-training run that is not finished, left out")
        return
    record = run_record(run)
    study = "variants" if is_variant else "pretraining"
    _check_form(study, record, run / SUMMARY)
    summary_file = file.removesuffix(RUN) + SUMMARY
    found[study].append({**record, "study": study, "file": summary_file, "folder": str(run.resolve())})


def _number(seed: str) -> int | str:
    """Of a folder `seed-N`."""
    number = seed.removeprefix("seed-")
    return int(number) if number.isdigit() else seed


def _holds_ablations(folder: Path) -> bool:
    """Whether the record of a list of variants is there: it is called by the list."""
    return any(read(path).get("study") == ABLATIONS for path in sorted(folder.glob("*.json")))


def _check_form(study: str, record: Record, path: Path) -> None:
    if wrong := planned.wrong_plan(record) if study == planned.STUDY else wrong_form(study, record):
        raise TriuneError(f"'{path}' is a damaged record of the study '{study}': {wrong}; remove or remake it")


def _read(path: Path, file: str, found: Gathered) -> Record | None:
    """The object in a file; what cannot be read is an error where the name is one of ours, and else is left out."""
    ours = path.name in (RECORD, "parameters.json", f"{ABLATIONS}.json") or path.stem.startswith("seed-")
    ours = ours or path.parent.name in ("time", "inspect") or path.name == planned.FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if ours:
            raise TriuneError(f"cannot read '{path}': {one_line(error)}; remove it and make it again") from error
        found.notes.append(f"{file}: cannot be read, left out")
        return None
    if not isinstance(record, dict):
        if ours:
            raise TriuneError(f"'{path}' holds no JSON object: remove it and make it again")
        found.notes.append(f"{file}: no record of a study, left out")
        return None
    return record


def _study(path: Path, record: Record | None) -> str | None:
    if record is None:
        return None
    named = record.get("study")
    if isinstance(named, str) and named in _NEEDED:
        return named
    if path.name == RECORD and path.parent.name.startswith("seed-"):
        return "finetuning"
    return None


def _check_double(study: str, records: list[Record]) -> None:
    taken: dict[tuple[Any, ...], str] = {}
    for record in records if study in _KEYS else []:
        key = tuple(record[name] for name in _KEYS[study])
        if key in taken:
            what = ", ".join(f"{name} {shown(record[name])}" for name in _KEYS[study])
            raise TriuneError(
                f"'{taken[key]}' and '{record['file']}' are both of {study}, {what}: keep one, or give the models "
                "different names"
            )
        taken[key] = record["file"]


def _place(record: Record, models: dict[str, int]) -> tuple[Any, ...]:
    label = record.get("label") or record.get("model")
    task = str(record.get("task") or record.get("source") or "")
    place = models.get(label, len(models)) if isinstance(label, str) else 0
    return task, place, str(label) if isinstance(label, str) else "", record.get("seed") or 0, record["file"]
