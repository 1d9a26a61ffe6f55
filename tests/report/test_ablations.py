import json

import pytest

from tests.report import made
from triune.errors import TriuneError
from triune.report.ablations import ablation_tables
from triune.report.answer import statements
from triune.report.gather import gather
from triune.report.page import write_report
from triune.report.rates import rates_table
from triune.report.sections import sections
from triune.training.recipe import load_recipe


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


def test_what_is_still_to_run_is_said(tmp_path):
    part = record(variant("standard", [3.0]), variant("a", [3.3]), seeds=[1]) | {
        "missing": ["b", "c"],
        "list": "levers",
    }
    assert "Still to run, and not in the table: b, c." in ablation_tables(part)[0].notes
    for one in part["variants"]:
        one["validation_losses"] = [one["validation_loss"]]
    made.write(tmp_path / "ablations.json", part)
    text = next(one.text for one in statements(gather([tmp_path])) if one.topic == "Ablations")
    assert text.startswith("Of 2 variants of 'levers' standard has the lowest validation loss, a the highest;")
    assert text.endswith("no significance can be told. 2 are still to run.")


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
    assert "shown to be below standard: rotary; above rotary: shared-rotary." in text
    assert "learnt hardly more" not in text
    both["variants"][0]["validation_loss"] = 99.0
    made.write(tmp_path / "ablations.json", both)
    text = next(one.text for one in statements(gather([tmp_path])) if one.topic == "Ablations")
    assert "1 of them learnt hardly more than how often words occur" in text
    rotary["against"] = "rotray"
    made.write(tmp_path / "ablations.json", both)
    with pytest.raises(TriuneError, match="there is no variant 'rotray'"):
        gather([tmp_path])


def test_variants_of_a_list_without_record_are_shown_beside_one_that_has(tmp_path):
    made.write_ablations(tmp_path / "ablations")
    made.write_run(tmp_path / "ablations" / "rolled" / "seed-1", "shared", 2.1)
    (section,) = [one for one in sections(gather([tmp_path])) if one.id == "ablations"]
    assert [table.title for table in section.tables] == ["Ablations and controls", "Variants of one recipe"]
    assert [row[0] for row in section.tables[1].rows] == ["rolled"]


def test_each_variant_has_its_curve_between_those_of_standard_and_shared(tmp_path):
    found = gather([made.write_results(tmp_path)])
    (section,) = [one for one in sections(found) if one.id == "ablations"]
    assert [chart.title for chart in section.charts] == ["standard", "shared-signed"]  # the lowest loss first
    chart = section.charts[1]
    assert chart.models == [0, 1]
    for name in ("standard, seed 1", "shared, seed 1", "shared-signed, seed 1", "shared-signed, seed 2"):
        assert f'data-name="{name}"' in chart.svg
    assert chart.svg.count('class="series marked s2"') == 2  # of no model of the page
    assert section.models == [0, 1]
    assert ".s2{--c:var(--text)}" in write_report([tmp_path], tmp_path / "page.html", found=found).read_text()
    columns = ["tokens seen", *(f"{label}, seed {n}" for label in ("standard", "shared-signed") for n in (1, 2))]
    assert sorted(section.folded[0].columns) == sorted(columns)
    path = tmp_path / "ablations" / "ablations.json"
    record = json.loads(path.read_text())
    record["variants"].append({**record["variants"][1], "name": "like-signed", "against": "shared-signed"})
    made.write(path, record)
    made.write_run(tmp_path / "ablations" / "like-signed" / "seed-1", "shared", 2.3)
    (section,) = [one for one in sections(gather([tmp_path])) if one.id == "ablations"]
    (chart,) = [one for one in section.charts if one.title == "like-signed"]
    assert (chart.svg.count('class="series marked s2"'), chart.svg.count('class="series line s2"')) == (1, 1)
    for run in ("standard", "shared"):  # of other lengths: nothing to set a variant beside
        path = tmp_path / "runs" / run / "summary.json"
        made.write(path, json.loads(path.read_text()) | {"tokens": 1})
    (section,) = [one for one in sections(gather([tmp_path])) if one.id == "ablations"]
    assert (section.charts, section.folded, len(section.tables)) == ([], [], 1)


def write_search(folder, losses):
    for rate, loss in losses.items():
        summary = {"study": "rates", "identity": "", "operator": "shared", "learning_rate": rate}
        found = {"validation_loss": loss, "unigram_entropy": 4.36, "steps": 10}
        made.write(folder / f"{rate:g}" / "summary.json", summary | (found if loss else {"diverged": "not finite"}))


def test_the_search_of_rates_is_shown(tmp_path):
    made.write_ablations(tmp_path / "ablations")
    write_search(tmp_path / "rates" / "standard", {1e-4: 3.0, 1e-3: 2.5, 1e-2: None})
    write_search(tmp_path / "rates" / "shared", {1e-4: 3.0, 1e-3: 2.9, 1e-2: 2.8})
    write_search(tmp_path / "rates" / "rolled", {1e-4: 4.5, 1e-3: 4.3, 1e-2: 4.4})
    write_search(tmp_path / "rates" / "begun", {1e-4: 3.0})
    write_search(tmp_path / "rates" / "lost", {1e-4: None, 1e-3: None, 1e-2: None})
    found = gather([tmp_path])
    tables = {table.title: table for section in sections(found) for table in section.tables}
    search = tables["Search of learning rates"]
    assert search.columns == ["model", "0.0001", "0.001", "0.01", "chosen"]
    rows = {row[0]: row[1:] for row in search.rows}
    assert rows["standard"] == ["3.000", "2.500", "diverged", "0.001"]
    assert rows["shared"][-1] == "0.01, at the edge"
    assert rows["begun"] == ["3.000", "–", "–", "not finished"]
    assert rows["lost"] == ["diverged"] * 3 + ["–"]
    assert search.notes[1].endswith(": shared.")
    assert search.notes[2].endswith("little more than chance: rolled.")
    assert search.sources[0, 1] == (f"rates/{search.rows[0][0]}/0.0001/summary.json",)
    ablations = tables["Ablations and controls"]
    rate = load_recipe("pocket").optimizer.learning_rate
    assert ablations.columns[-1] == "learning rate"
    assert [row[-1] for row in ablations.rows] == [f"{rate:g}"] * 2
    assert "same text, order and masks for all, learning rates chosen from the same grid." in ablations.notes[0]
    write_report([tmp_path], tmp_path / "report.html", found=found)
    write_report([tmp_path], tmp_path, kind="records", found=found)
    assert "rate 0.001" in (tmp_path / "records.csv").read_text()


def test_the_grid_of_a_search_is_the_one_that_was_planned(tmp_path):
    plan = {"study": "planned", "operators": ["standard"], "tasks": [], "pretraining_seeds": 1, "finetuning_seeds": 1}
    made.write(tmp_path / "planned.json", plan | {"learning_rates": [1e-3, 1e-2]})
    write_search(tmp_path / "rates" / "standard", {1e-4: 2.0, 1e-3: 2.5, 1e-2: 2.6})  # 1e-4 from an earlier grid
    write_search(tmp_path / "rates" / "shared", {1e-3: 2.9, 1e-2: 2.8})
    write_search(tmp_path / "rates" / "begun", {1e-4: 3.0})
    found = gather([tmp_path])
    search = rates_table(found["rates"], found.planned_rates)
    rows = {row[0]: row[1:] for row in search.rows}
    assert rows["standard"] == ["2.000", "2.500", "2.600", "0.001"]
    assert rows["shared"] == ["–", "2.900", "2.800", "0.01, at the edge"]
    assert rows["begun"] == ["3.000", "–", "–", "not finished"]
    assert search.notes[1] == "Not of this grid, tried before, and never chosen: 0.0001."


def test_a_rate_of_its_own_is_said_and_without_a_search_nothing_is():
    one = variant("fast", [2, 2], 0.01) | {"set": ["optimizer.learning_rate=1e-2"]}
    both = record(variant("standard", [3.0, 3.2]), one)
    files = {"ablations/fast/seed-1/summary.json": 1e-2, "ablations/fast/seed-2/summary.json": 1e-2}
    (searched,), (plain,) = ablation_tables(both, files), ablation_tables(both)
    assert "chosen from the same grid (but not of fast)." in searched.notes[0]
    assert [row[-1] for row in searched.rows] == ["0.01", "–"]
    assert plain.columns[-1] == "p, Holm"
    assert "masks for all. Unigram" in plain.notes[0]
