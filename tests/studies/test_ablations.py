import json

import pytest
import yaml
from scipy import stats

from triune.errors import TriuneError
from triune.evaluation.significance import holm
from triune.studies.ablations import Ablations, Variant, ablation_cells, load_ablations, write_ablations

LOSSES = {
    "standard": [3.0, 3.1, 3.3],
    "rotary": [2.5, 2.7, 2.6],
    "shared": [3.2, 3.2, 3.5],
    "shared-rotary": [2.6, 2.9, 2.7],
}


def listed(against):
    variants = [Variant(name, f"about {name}", (), against=against.get(name)) for name in LOSSES]
    return Ablations("levers", "", "standard", tuple(variants))


def summaries(out, losses=LOSSES):
    for name, values in losses.items():
        for seed, loss in enumerate(values, start=1):
            summary = {"operator": name, "parameters": 1, "validation_loss": loss, "identity": f"{name}-{seed}"}
            summary |= {"steps": 1, "tokens": 1, "unigram_entropy": 4.0, "device": "cpu"}
            path = out / name / f"seed-{seed}" / "summary.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(summary))


def written(tmp_path, **variants):
    made = {"standard": {}, "other": {}, **variants}
    made = {name: {"about": name, "set": [], **more} for name, more in made.items()}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"reference": "standard", "variants": made}))
    return str(tmp_path / "mine.yaml")


def test_a_variant_is_tested_against_what_it_is_compared_with(tmp_path):
    summaries(tmp_path)
    record = write_ablations(listed({"shared-rotary": "rotary"}), [1, 2, 3], tmp_path)
    plain = write_ablations(listed({}), [1, 2, 3], tmp_path)
    p = {one["name"]: one["p_holm"] for one in record["variants"]}
    by_hand = {
        name: stats.ttest_rel(LOSSES[name], LOSSES[other]).pvalue
        for name, other in (("rotary", "standard"), ("shared", "standard"), ("shared-rotary", "rotary"))
    }
    assert [p[name] for name in by_hand] == pytest.approx(holm(list(by_hand.values())))
    assert p["standard"] is None
    assert [one.get("against") for one in record["variants"]] == [None, None, None, "rotary"]
    assert record["identity"] == plain["identity"]
    assert not any("against" in one for one in plain["variants"])


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ({"third": {"against": "othr"}}, "there is no variant 'othr'; did you mean 'other'"),
        ({"third": {"against": "third"}}, "'third' cannot be compared with 'third'"),
        ({"standard": {"against": "other"}}, "'standard' cannot be compared with 'other'"),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path, variants, said):
    with pytest.raises(TriuneError) as caught:
        load_ablations(written(tmp_path, **variants))
    assert said.split("; did")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_positions_and_norms_are_compared_with_their_like():
    for name, part in (("levers", "-rotary"), ("post-norm", "-post-norm")):
        for one in load_ablations(name).variants:
            alike = one.name.endswith(part) and not one.name.startswith("standard")
            assert one.against == (f"standard{part}" if alike else None)
            if alike:
                assert any("rotary" in part or "post" in part for part in one.set)


def test_a_record_of_another_list_is_not_written_over(tmp_path):
    summaries(tmp_path)
    first = Ablations("first", "", "standard", (Variant("standard", "", ()), Variant("rotary", "", ())))
    second = Ablations("second", "", "standard", (Variant("standard", "", ()), Variant("shared", "", ())))
    write_ablations(first, [1], tmp_path)
    before = (tmp_path / "ablations.json").read_bytes()
    for attempt in (
        lambda: write_ablations(second, [1], tmp_path),
        lambda: ablation_cells(second, "pocket", [], [1], tmp_path / "no-data", tmp_path),  # before anything is run
    ):
        with pytest.raises(TriuneError, match="is of a list with rotary, and 'second' has no such variants") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert (tmp_path / "ablations.json").read_bytes() == before
    write_ablations(listed({}), [1, 2], tmp_path)  # more variants and more seeds: nothing is lost
    assert json.loads((tmp_path / "ablations.json").read_text())["seeds"] == [1, 2]
