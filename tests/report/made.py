"""Records of every study in the form in which the commands write them, with figures of the test's choosing."""

import json
from pathlib import Path

VERSIONS = {"triune": "0.1.0", "python": "3.11.0", "torch": "2.13.0"}
ROWS = 200
SEEDS = (1, 2, 3)
TASKS = {"mrpc": ("MRPC", "accuracy"), "sst2": ("SST-2", "accuracy"), "mnli": ("MNLI", "accuracy")}
# Rows that a model gets wrong, a seed each: far apart, or no different beyond the noise of seeds.
WRONG = {
    "standard": {"standard": (20, 21, 22), "shared": (80, 82, 81)},
    "shared": {"standard": (80, 82, 81), "shared": (20, 21, 22)},
    "none": {"standard": (40, 50, 60), "shared": (50, 42, 60)},
}

HOSTILE_MODEL = '"><script>alert(1)</script>'
HOSTILE_TASK = "</script><img src=x onerror=alert(2)> `code` & {{ 7 * 7 }}"
HOSTILE_LINK = "[click](javascript:alert(3))"
HOSTILE_RUN = "<b onclick=alert(4)>bold"


def write(path: Path, value) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def finetune_recipe():
    from triune.training.finetune_recipe import load_finetune_recipe

    return load_finetune_recipe("pocket-tasks").to_dict()


def wrong_rows(count: int, seed: int) -> list[int]:
    return [(row + 7 * seed) % ROWS for row in range(count)]


def task_record(folder: Path, task: str, model: str, seed: int, wrong: int, /, **other) -> dict:
    """A run of `triune finetune`: its record and its predictions."""
    title, metric = TASKS.get(task, (task, "accuracy"))
    predictions = [0 if row in wrong_rows(wrong, seed) else 1 for row in range(ROWS)]
    score = 100 * (1 - wrong / ROWS)
    record = {
        "model": model,
        "model_path": f"runs/{model}/model",
        "model_sha256": f"sha-{model}",
        "identity": f"{task}-{model}-{seed}",
        "operator": model,
        "parameters": 1000,
        "seed": seed,
        "recipe": finetune_recipe(),
        "task": task,
        "task_title": title,
        "kind": "classification",
        "metric": metric,
        "metric_title": metric,
        "max_length": 32,
        "train_rows": 1200,
        "train_source": f"glue/{task}/train.parquet",
        "dev_rows": ROWS,
        "dev_source": f"glue/{task}/dev.parquet",
        "subset": False,
        "truncated": 0,
        "device": "cpu",
        "attention": "sdpa",
        "captured": False,
        "versions": VERSIONS,
        "scores": {metric: score, "f1": score},
        "primary": score,
        "more_scores": {"dev_mismatched": {metric: score - 1}} if task == "mnli" else {},
        "best_epoch": 2,
        "epochs": 2,
        "history": [],
        "train_seconds": 1.0,
    } | other
    place = folder / task / model / f"seed-{seed}"
    kept = {"ids": list(range(ROWS)), "labels": [1] * ROWS, "predictions": predictions}
    if record["kind"] == "span":
        kept = {"ids": list(range(ROWS)), "exact": predictions, "f1": predictions}
    write(place / "dev.json", kept)
    write(place / "record.json", record)
    return record


def write_tasks(folder: Path, better: str = "none", seeds=SEEDS) -> None:
    for model, counts in WRONG[better].items():
        for seed, wrong in zip(seeds, counts, strict=False):
            for task in TASKS:
                task_record(folder, task, model, seed, wrong)
            score = 100 * (1 - wrong / ROWS)
            span = {"kind": "span", "metric": "f1", "metric_title": "F1", "task_title": "SQuAD v1.1"}
            scores = {"scores": {"exact": score - 2, "f1": score}}
            task_record(folder, "squad-v1.1", model, seed, wrong, **span, **scores)


def write_run(run: Path, operator: str, loss: float, seed: int = 1, **model) -> None:
    from triune.training.recipe import load_recipe, swap_operator

    recipe = load_recipe("pocket", swap_operator(load_recipe("pocket"), operator)).to_dict()
    recipe["training"]["seed"] = seed
    recipe["model"] |= model
    write(run / "run.json", {"recipe": recipe, "data": {"train.tokens.bin": "abcdef012345"}, "versions": VERSIONS})
    summary = {
        "study": "pretraining",
        "identity": f"{operator}-{seed}",
        "run": str(run),
        "operator": operator,
        "parameters": 432_000 if operator == "shared" else 498_000,
        "steps": 100,
        "tokens": 102_400,
        "train_loss": loss + 0.1,
        "validation_loss": loss,
        "unigram_entropy": 4.36,
        "seconds": 12.0,
        "device": "cpu",
    }
    write(run / "summary.json", summary)
    rows = []
    for step in range(20, 101, 20):
        rows.append({"step": step, "tokens": step * 1024, "loss": loss + 200 / step})
        if step % 40 == 20:
            rows.append({"step": step, "tokens": step * 1024, "validation_loss": loss + 190 / step - 1.9})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def noise_record(folder: Path, task: str, model: str, seed: int, drop: float) -> None:
    """Accuracy falls by `drop` points at the highest level of every kind."""
    levels = {"gaussian": [0.0, 0.2, 0.4], "typos": [0.0, 0.4]}
    curves = {
        kind: [
            {"level": at, "scores": [90 - drop * at / 0.4 - draw / 10 for draw in range(1 if at == 0 else 2)]}
            for at in ats
        ]
        for kind, ats in levels.items()
    }
    lost = round(drop)
    area = [0.5 if row in wrong_rows(2 * lost, seed) else 0.9 for row in range(ROWS)]
    record = {
        "study": "noise",
        "identity": f"noise-{task}-{model}-{seed}",
        "task": task,
        "task_title": TASKS[task][0],
        "metric": "accuracy",
        "metric_title": "accuracy",
        "model": model,
        "operator": model,
        "model_path": "",
        "model_sha256": "",
        "seed": seed,
        "data_sha256": "",
        "dev_source": "",
        "dev_rows": ROWS,
        "subset": False,
        "settings": {
            "where": "after",
            "draws": 2,
            "levels": levels["gaussian"],
            "rates": levels["typos"],
            "kinds": list(levels),
            "seed": 0,
        },
        "embedding_norm": 11.3,
        "clean": 90.0,
        "curves": curves,
        "area": dict.fromkeys(levels, 90 - drop / 2),
        "retention": dict.fromkeys(levels, 100 * (90 - drop / 2) / 90),
        "examples": {"ids": "checksum", "clean": [1] * ROWS, "area": dict.fromkeys(levels, area)},
        "device": "cpu",
        "versions": VERSIONS,
    }
    write(folder / task / model / f"seed-{seed}.json", record)


def transfer_record(folder: Path, source: str, model: str, seed: int, wrong: dict[str, int]) -> None:
    targets = [
        {
            "target": target,
            "split": "dev",
            "title": TASKS[target][0],
            "out_of_domain": False,
            "own_task": target == source,
            "dev_source": "",
            "data_sha256": "",
            "rows": ROWS,
            "subset": False,
            "classes": ["no", "yes"],
            "mapping": "entailment against the rest",
            "score": 100 * (1 - count / ROWS),
            "majority": 52.5,
            "ids": "checksum",
            "right": [0 if row in wrong_rows(count, seed) else 1 for row in range(ROWS)],
        }
        for target, count in wrong.items()
    ]
    about = {"source": source, "source_title": TASKS[source][0], "model": model, "operator": model, "seed": seed}
    rest = {
        "study": "transfer",
        "identity": "",
        "model_path": "",
        "model_sha256": "",
        "device": "cpu",
        "versions": VERSIONS,
    }
    write(folder / source / model / f"seed-{seed}.json", {**rest, **about, "targets": targets})


def time_record(folder: Path, task: str, ratio: float, flop_ratio: float) -> None:
    def contestant(operator: str, ratio: float, flop_ratio: float) -> dict:
        return {
            "model": operator,
            "operator": operator,
            "operator_settings": {},
            "seconds": [2 * ratio, 2.1 * ratio, 2.05 * ratio],
            "median": 2.05 * ratio,
            "ratio": ratio,
            "flops": 1e12 * flop_ratio,
            "flop_ratio": flop_ratio,
            "how": "attention sdpa, not captured",
        }

    record = {
        "study": "time",
        "identity": "",
        "task": task,
        "task_title": task.upper(),
        "rows": 1200,
        "subset": False,
        "source": "",
        "batch": 16,
        "steps": 75,
        "mean_tokens": 9.3,
        "precision": "float32",
        "rounds": 3,
        "reference": "standard",
        "model": {"layers": 2, "width": 128, "heads": 4, "feed_forward": 512, "vocabulary": 700},
        "contestants": [contestant("standard", 1.0, 1.0), contestant("shared", ratio, flop_ratio)],
        "device": "cpu",
        "versions": VERSIONS,
    }
    write(folder / f"{task}.json", record)


def inspect_record(folder: Path, model: str) -> None:
    shared = model == "shared"
    values = [-1 + 2 * number / 127 for number in range(128)]
    layer = {
        "layer": 0,
        "score_scale": {"sorted": values, "negative_share": 0.5, "attracts": 0.5, "repels": 0.5} if shared else None,
        "distance": {"query": 0.3, "key": 0.2, "value": 0.4} if shared else None,
        "sign_changes": {"query": 0.0, "key": 0.0, "value": 0.0} if shared else None,
        "score_symmetry": 0.9,
        "heads": [{"head": n, "own": 0.1, "entropy": 0.8, "negative_share": 0.5 if shared else None} for n in (0, 1)],
        "head_similarity": [[1.0, 0.4], [0.4, 1.0]],
    }
    record = {
        "study": "inspect",
        "identity": "",
        "model": model,
        "operator": model,
        "operator_settings": {},
        "model_path": "",
        "model_sha256": "",
        "texts": 64,
        "tokens": 700,
        "truncated": 0,
        "source": "validation text",
        "start": "exact" if shared else None,
        "layers": [layer],
        "device": "cpu",
        "versions": VERSIONS,
    }
    write(folder / f"{model}.json", record)


def write_ablations(folder: Path, listed: str = "ablations") -> None:
    variants = []
    for name, operator, loss in (("standard", "standard", 2.0), ("shared-signed", "shared", 2.3)):
        for seed in (1, 2):
            write_run(folder / name / f"seed-{seed}", operator, loss + seed / 100, seed)
        variants.append(
            {
                "name": name,
                "about": f"about {name}",
                "set": [],
                "operator": operator,
                "parameters": 1000,
                "runs": [f"{name}/seed-{seed}/summary.json" for seed in (1, 2)],
                "validation_losses": [loss + 0.01, loss + 0.02],
                "validation_loss": loss + 0.015,
                "deviation": 0.007,
                "p_holm": None if name == "standard" else 0.01,
            }
        )
    about = {"study": "ablations", "identity": "", "about": "", "reference": "standard", "seeds": [1, 2], "steps": 100}
    rest = {"tokens": 102_400, "unigram_entropy": 4.36, "device": "cpu", "versions": VERSIONS}
    write(folder / f"{listed}.json", {**about, **rest, "variants": variants})


def write_parameters(path: Path) -> None:
    from triune import preset
    from triune.benchmarks.paper import TABLE_4_HEADS
    from triune.benchmarks.parameters import study

    write(path, study(preset("base"), TABLE_4_HEADS, ["standard", "shared"]))


def write_results(out: Path, better: str = "none") -> Path:
    """A folder as `triune reproduce` leaves it, of two models."""
    write_parameters(out / "parameters.json")
    write(out / "pocket" / "pocket.json", {"seed": 1})
    write_run(out / "runs" / "standard", "standard", 1.3)
    write_run(out / "runs" / "shared", "shared", 1.6, operator_settings={"role_start": "signed"})
    write_tasks(out / "tasks", better)
    for model, drop in (("standard", 30.0), ("shared", 10.0)):
        for seed in SEEDS:
            for task in ("mnli", "sst2"):
                noise_record(out / "noise", task, model, seed, drop + seed * drop / 10)
            for source in ("mnli", "mrpc"):
                wrong = {target: 20 + seed if target == source else 60 + seed for target in ("mnli", "mrpc")}
                transfer_record(out / "transfer", source, model, seed, wrong)
        inspect_record(out / "inspect", model)
    time_record(out / "time", "cola", 0.75, 0.9)
    time_record(out / "time", "rte", 0.95, 0.9)
    write_ablations(out / "ablations")
    return out
