"""What the documents show runs, and the figures in them are those that the code gives."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python_blocks(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_first_example_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = python_blocks("README.md")[0]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 12
    found: dict = {}
    exec(code, found)
    assert found["loss"].item() > 0
    assert found["model"].config.operator == "shared"
    assert (tmp_path / "my-shared-bert" / "model.safetensors").is_file()


def test_second_example_of_the_readme_but_for_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(python_blocks("README.md")[0], {})
    lines = [line for line in python_blocks("README.md")[1].splitlines() if "google-bert" not in line]
    found = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "print(model.classifier.out_features)"])],
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == "3", found.stderr


def test_example_operator_of_contributing(tmp_path, monkeypatch):
    from triune import operators

    operator, use, check = python_blocks("CONTRIBUTING.md")
    (tmp_path / "my_operator.py").write_text(operator)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        exec(use, {})
        exec(check, {})
    finally:
        operators.registry._OPERATORS.pop("shifted", None)


@pytest.mark.parametrize("operator", ["standard", "symmetric", "pairwise", "shared", "kv-tied", "qkv-tied"])
def test_figures_of_the_readme(operator):
    from triune import preset
    from triune.benchmarks.parameters import study

    row = study(preset("base"), ["masked-lm"], [operator])["operators"][operator]
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| `{operator}` |"))
    assert f"{row['model']['masked-lm']['parameters']:,}" in line
    if operator != "standard":
        assert f"{row['saved']['model']['masked-lm']:.2f} %" in line
