import pytest

from tests.report import made
from triune.errors import TriuneError
from triune.report.ablations import ablation_tables
from triune.report.answer import statements
from triune.report.gather import gather


def variant(name, losses, p=None):
    mean = sum(losses) / len(losses)
    return {
        "name": name,
        "about": f"what {name} is",
        "parameters": 1234,
        "runs": [f"{name}/seed-{number}/summary.json" for number in range(1, len(losses) + 1)],
        "validation_loss": mean,
        "deviation": 0.1 if len(losses) > 1 else None,
        "p_holm": p,
    }


def record(*variants, seeds=(1, 2)):
    shared = {"study": "ablations", "file": "ablations/ablations.json", "reference": "standard", "seeds": list(seeds)}
    return {**shared, "steps": 10, "tokens": 1000, "unigram_entropy": 4.4, "variants": list(variants)}


def test_variants_are_in_the_order_of_their_loss_and_marked_where_shown():
    table = ablation_tables(
        record(variant("a", [4.3, 4.3], 0.2), variant("standard", [3.0, 3.2]), variant("b", [2, 2], 0.01))
    )[0]
    assert [row[0] for row in table.rows] == ["b", "standard", "a"]
    assert [row[5] for row in table.rows] == ["0.010 †", "–", "0.200"]
    assert table.rows[0][4] == "−1.100"


def test_every_figure_names_its_records():
    table = ablation_tables(record(variant("standard", [3.0, 3.2]), variant("a", [4.3, 4.3], 0.2)))[0]
    assert {column for row, column in table.sources if row == 1} == {2, 3, 4, 5}
    assert table.sources[1, 3] == ("ablations/a/seed-1/summary.json", "ablations/a/seed-2/summary.json")
    assert table.sources[1, 5] == ("ablations/ablations.json",)


def test_variants_that_learnt_nothing_are_named():
    table = ablation_tables(record(variant("standard", [3.0]), variant("a", [4.3]), seeds=[1]))[0]
    assert "their order says nothing: a." in table.notes[-1]
    assert "One seed: no significance can be told." in table.notes
    assert not any("says nothing" in note for note in ablation_tables(record(variant("standard", [3.0])))[0].notes)


def test_differences_are_from_what_a_variant_is_compared_with(tmp_path):
    rotary = variant("shared-rotary", [2.6, 2.6], 0.01) | {"against": "rotary"}
    both = record(variant("standard", [3.0, 3.2]), variant("rotary", [2.5, 2.5], 0.01), rotary)
    (table,) = ablation_tables(both)
    assert table.columns[4] == "difference (from)"
    assert [row[4] for row in table.rows] == ["−0.600 (standard)", "+0.100 (rotary)", ""]
    assert "against the variant in brackets" in table.notes[1]
    for one in both["variants"]:
        one["validation_losses"] = [one["validation_loss"]] * 2
    made.write(tmp_path / "ablations.json", both)
    text = next(one.text for one in statements(gather([tmp_path])) if one.topic == "Ablations")
    assert "shown to differ from standard: rotary; from rotary: shared-rotary." in text
    rotary["against"] = "rotray"
    made.write(tmp_path / "ablations.json", both)
    with pytest.raises(TriuneError, match="there is no variant 'rotray'"):
        gather([tmp_path])
