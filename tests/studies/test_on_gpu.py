"""Every study on a CUDA device, small. `make test-gpu`."""

import json

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def read(path):
    return json.loads(path.read_text())


def test_all_studies_on_the_device(tiny, command, tmp_path):
    out = tmp_path / "out"
    result = command(*tiny.arguments, out)
    assert result.returncode == 0, result.stderr
    for path in out.glob("noise/*/*/seed-*.json"):
        noise, tuned = read(path), read(out / "tasks" / path.relative_to(out / "noise").with_suffix("") / "record.json")
        assert noise["device"] == tuned["device"] == torch.cuda.get_device_name()
        assert noise["clean"] == pytest.approx(tuned["primary"])
    own = [
        (target["score"], read(out / "tasks" / path.relative_to(out / "transfer").with_suffix("") / "record.json"))
        for path in out.glob("transfer/*/*/seed-*.json")
        for target in read(path)["targets"]
        if target["own_task"]
    ]
    assert len(own) == 8
    assert all(score == pytest.approx(tuned["primary"]) for score, tuned in own)
    time = read(out / "time" / "mrpc.json")
    assert all("captured" in one["how"] and "not captured" not in one["how"] for one in time["contestants"])
    assert (out / "report.html").is_file()
    assert "Everything is finished" in command(*tiny.arguments, out).stderr
