import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

from tests.training.conftest import TINY
from triune.errors import TriuneError
from triune.evaluation.over_seeds import pooled_tests
from triune.evaluation.significance import holm
from triune.studies.ablations import (
    Ablations,
    Variant,
    ablation_cells,
    check_lists,
    load_ablations,
    says_more,
    write_ablations,
    written_recipes,
)
from triune.studies.place import Place, check
from triune.studies.pretraining import ablation_records, comparable
from triune.studies.scale import load_scale

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
            path.with_name("run.json").write_text(json.dumps({"versions": {"torch": f"of {name}"}}))


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
    losses = {name: np.array(values) for name, values in LOSSES.items()}
    both = pooled_tests(np.stack([losses[name] - losses["standard"] for name in ("rotary", "shared")]))
    alone = stats.ttest_rel(losses["shared-rotary"], losses["rotary"]).pvalue
    by_hand = holm([both[0].p, both[1].p, alone])
    assert [p[name] for name in ("rotary", "shared", "shared-rotary")] == pytest.approx(by_hand)
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
        (
            {"third": {"narrowed_to": "other"}, "fourth": {"narrowed_to": "third"}},
            "'fourth' cannot be narrowed to 'third', which is narrowed itself",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path, variants, said):
    with pytest.raises(TriuneError) as caught:
        load_ablations(written(tmp_path, **variants))
    assert said.split("; did")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_yaml_takes_for_numbers(tmp_path):
    path = Path(written(tmp_path, **{"2": {}, "third": {"against": 2, "narrowed_to": 2}}))
    path.write_text(path.read_text().replace("'2'", "2"))
    assert 2 in yaml.safe_load(path.read_text())["variants"]
    third = load_ablations(str(path)).variants[-1]
    assert (third.against, third.narrowed_to) == ("2", "2")


def test_an_override_with_a_colon_is_one_line(tmp_path):
    ablations = load_ablations(written(tmp_path, third={"set": [{"model.operator": "standard"}]}))
    with pytest.raises(TriuneError, match=r"'\{'model.operator': 'standard'\}' is not PART.KEY=VALUE"):
        written_recipes(ablations, "pocket", [])


def test_settings_as_a_text_are_one_line(tmp_path):
    with pytest.raises(TriuneError, match=r"is no list of .* \(set is a list of PART.KEY=VALUE, not 'a=b'\)"):
        load_ablations(written(tmp_path, third={"set": "a=b"}))


def test_a_variant_that_cannot_be_built_is_said_before_another_is_trained(tmp_path, blocks):
    ablations = load_ablations(written(tmp_path, third={"set": ["model.width=18", "model.heads=4"]}))
    with pytest.raises(TriuneError, match="third: hidden_size 18 is not divisible by num_attention_heads 4"):
        ablation_cells(ablations, "pocket", TINY, [1], blocks, tmp_path / "out")


def test_variants_that_are_left_out():
    whole, rest = load_ablations("ablations"), load_ablations("ablations", ["shared-value", "in another list"])
    assert [one for one in whole.variants if one.name != "shared-value"] == list(rest.variants)
    for wanted in ("standard", "shared-signed"):  # the reference, and what a narrower one is to be as small as
        with pytest.raises(TriuneError, match=f"'{wanted}' is left out, and other variants are compared with it"):
            load_ablations("ablations", [wanted])


def test_positions_and_norms_are_compared_with_their_like():
    for name, part in (("levers", "-rotary"), ("confirmed", "-rotary"), ("post-norm", "-post-norm")):
        for one in load_ablations(name).variants:
            alike = one.name.endswith(part) and one.name != f"standard{part}"
            assert one.against == (f"standard{part}" if alike else None)
            if alike:
                assert any("rotary" in part or "post" in part for part in one.set)


def made_list(name, *variants):
    return Ablations(name, "", "standard", tuple(Variant(one, f"about {one}", ()) for one in ("standard", *variants)))


def test_a_record_of_another_list_is_not_written_over(tmp_path):
    summaries(tmp_path)
    first, other = made_list("mine", "rotary"), made_list("mine", "shared")
    write_ablations(first, [1], tmp_path)
    before = (tmp_path / "mine.json").read_bytes()
    for attempt in (
        lambda: write_ablations(other, [1], tmp_path),
        lambda: ablation_cells(other, "pocket", [], [1], tmp_path / "no-data", tmp_path),  # before anything is run
    ):
        with pytest.raises(TriuneError, match="is of a list with rotary, and 'mine' has no such variants") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert (tmp_path / "mine.json").read_bytes() == before
    write_ablations(made_list("mine", "rotary", "shared"), [1, 2], tmp_path)  # more variants and seeds: nothing is lost
    assert json.loads((tmp_path / "mine.json").read_text())["seeds"] == [1, 2]


def test_versions_are_of_the_runs_and_not_of_who_makes_the_table(tmp_path):
    summaries(tmp_path)
    assert write_ablations(listed({}), [1], tmp_path)["versions"] == {"torch": "of standard"}


def test_a_record_may_say_more_than_the_runs_that_are_there(tmp_path):
    summaries(tmp_path)
    path = tmp_path / "mine.json"
    assert not says_more(path, [1], ["rotary"])
    write_ablations(made_list("mine", "rotary", "shared"), [1, 2], tmp_path)
    assert says_more(path, [1, 2], ["rotary"])  # its run has gone
    assert says_more(path, [1], [])  # made with more seeds than are asked for
    assert not says_more(path, [1, 2, 3], ["new"])
    path.write_text("{}")
    assert not says_more(path, [1], ["rotary"])


def test_fewer_seeds_do_not_replace_a_record_of_more(command, tmp_path):
    (tmp_path / "ablations.json").write_text('{"seeds": [1, 2, 3]}')
    done = command("ablate", "pocket", "--data", tmp_path / "blocks", "--out", tmp_path, "--seeds", "2")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "has seeds up to 3, which a record of --seeds 2 would be without: ask for as many, or choose another --out"
    )
    assert (tmp_path / "ablations.json").read_text() == '{"seeds": [1, 2, 3]}'


@pytest.mark.parametrize(
    ("there", "held", "names", "seeds"),
    [
        ({"standard": 3, "rotary": 1, "shared": 1}, (), ["standard", "rotary", "shared"], [1]),
        ({"standard": 3, "rotary": 2, "shared": 2}, (1,), ["standard", "rotary", "shared"], [1, 2]),
        # New to the list: it waits for the seeds that the record has.
        ({"standard": 3, "rotary": 2, "shared": 1}, (1, 2), ["standard", "rotary"], [1, 2]),
        ({"standard": 3, "rotary": 3, "shared-rotary": 1}, (1, 2, 3), ["standard", "rotary"], [1, 2, 3]),
        # It is compared with one that has not run.
        ({"standard": 1, "shared-rotary": 1}, (), ["standard"], [1]),
    ],
)
def test_what_is_compared_before_all_has_run(there, held, names, seeds):
    runs = {(name, seed) for name, count in there.items() for seed in range(1, count + 1)}
    kept, taken = comparable(listed({"shared-rotary": "rotary"}), [1, 2, 3], runs, held)
    assert ([one.name for one in kept.variants], taken) == (names, seeds)


def test_without_the_reference_nothing_is_compared():
    assert comparable(listed({}), [1, 2], {("rotary", 1), ("shared", 1)}, ()) == (None, [])
    assert comparable(listed({}), [1, 2], {("standard", 1), ("shared", 1)}, (1, 2))[0] is None  # runs that have gone


def test_a_record_is_called_by_its_list_whether_there_are_others_or_not(tmp_path):
    summaries(tmp_path)
    ours, mine = made_list("ablations", "rotary"), made_list("mine", "shared")
    for one in (ours, mine):
        write_ablations(one, [1], tmp_path)
    found = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert found.keys() == {"ablations.json", "mine.json"}
    assert "list" not in found["ablations.json"]  # as in older results
    assert found["mine.json"]["list"] == "mine"


def older(tmp_path, *variants):
    """A record of a list that was the only one, as it used to be written: without the name of its list."""
    summaries(tmp_path)
    write_ablations(made_list("ablations", *variants), [1], tmp_path)
    return (tmp_path / "ablations.json").read_bytes()


def test_an_older_record_of_an_only_list_gets_the_name_of_its_list(tmp_path):
    before = older(tmp_path, "shared")
    check_lists([made_list("ablations", "rotary"), made_list("mine", "shared")], tmp_path)
    assert not (tmp_path / "ablations.json").exists()
    assert (tmp_path / "mine.json").read_bytes() == before


@pytest.mark.parametrize("lists", [["ablations"], ["mine"], ["mine", "ablations"]])
def test_an_older_record_of_our_list_stays_what_it_is(lists, tmp_path):
    before = older(tmp_path, "rotary")
    variants = {"ablations": ["rotary"], "mine": ["shared"]}
    check_lists([made_list(name, *variants[name]) for name in lists], tmp_path)
    assert (tmp_path / "ablations.json").read_bytes() == before
    assert not (tmp_path / "mine.json").exists()


def seeds_of(name, records):
    return [path.parent.name for path in records if path.parent.parent.name == name]


def test_a_list_may_have_more_seeds_than_another(tmp_path):
    place = Place(tmp_path, load_scale("sprint", ["ablations.seeds={levers: 3}"]), tmp_path)
    records = ablation_records(place)
    assert seeds_of("rolled", records) == ["seed-1", "seed-2", "seed-3"]
    assert seeds_of("kv-tied", records) == ["seed-1"]
    assert seeds_of("standard", records) == ["seed-1", "seed-2", "seed-3"]  # of both lists, the runs of pre-training
    second = ablation_records(replace(place, round=1))
    assert (seeds_of("rolled", second), seeds_of("kv-tied", second)) == (["seed-2"], [])


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ("{lever: 3}", "no list is called 'lever' .did you mean 'levers'"),
        ("{levers: 0}", "seeds must be at least 1"),
        ("{levers: true}", "ablations.seeds must be a whole number, or one for each list"),
        ("{levers: many}", "ablations.seeds must be a whole number, or one for each list"),
        ("0", "seeds must be at least 1"),
        ("many", "seeds"),
    ],
)
def test_seeds_that_cannot_be_are_refused(seeds, said):
    with pytest.raises(TriuneError, match=said) as caught:
        load_scale("sprint", [f"ablations.seeds={seeds}"])
    assert "\n" not in str(caught.value)


def test_a_call_may_do_without_a_list_that_its_scale_speaks_of(tmp_path):
    left_out = load_scale("sprint").ablations.leave_out
    assert set(left_out) <= {one.name for one in load_ablations("ablations").variants}
    settings = ["ablations.variants=[post-norm]", "ablations.seeds={levers: 3}", "data.source=pocket"]
    check(Place(tmp_path, load_scale("sprint", settings)))
    with pytest.raises(TriuneError, match=r"no list has a variant 'shared-vlaue' .did you mean 'shared-value'"):
        check(Place(tmp_path, load_scale("sprint", [*settings, "ablations.leave_out=[shared-vlaue]"])))


def test_what_is_confirmed_is_what_was_tried():
    tried = {one.name: one for one in load_ablations("levers").variants}
    confirmed = load_ablations("confirmed").variants
    (control,) = (one for one in confirmed if one.narrowed_to)
    assert (control.name, control.narrowed_to) == ("standard-narrow-rotary", "rolled-halves-rotary")
    for one in confirmed:
        assert one is control or one == tried[one.name]
    assert load_scale("sprint").ablations.seeds_of("confirmed") == 3
    assert load_scale("sprint").ablations.seeds_of("levers") == 1
