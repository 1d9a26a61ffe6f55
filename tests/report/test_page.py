import csv
import html.parser
import io
import json
import re
from dataclasses import replace

import pytest

from tests.report import made
from triune.report.gather import gather
from triune.report.page import html_page, markdown_page, write_report
from triune.report.tuned_rates import tuned_rates_tables

PARTS = [
    "figure-2",
    "table-1",
    "table-2",
    "table-3",
    "table-4",
    "table-5",
    "figure-3",
    "table-6",
    "table-7",
    "ablations",
    "inside",
    "methods",
    "records",
]


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, the text outside of scripts, and the rows of tables."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.rows, self.text, self._skip, self._cell = [], [], "", 0, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._skip += tag in ("script", "style")
        if tag == "tr":
            self.rows.append([])
        self._cell = self._cell or tag in ("td", "th")
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._skip -= tag in ("script", "style")
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        if not self._skip:
            self.text += data
        if self._cell:
            self.rows[-1][-1] += data

    def row(self, *begins):
        return next(row for row in self.rows if row[: len(begins)] == list(begins))


@pytest.fixture(scope="module")
def text(page):
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text):
    return Reader(text)


def embedded(text, name):
    return json.loads(re.search(rf'id="{name}">(.*?)</script>', text, re.DOTALL)[1])


def test_every_part_is_there_in_the_papers_order(read):
    sections = [attributes.get("id") for tag, attributes in read.elements if tag == "section"]
    assert sections == [None, *PARTS]
    assert "No records of this part" not in read.text
    assert sum("data-points" in attributes for _, attributes in read.elements) > 10


def test_ours_stand_beside_the_papers(read):
    ours = ["accuracy", "89.50 ± 0.50", "87.27", "59.50 ± 0.50 ▼", "88.14"]
    assert read.row("MRPC (pocket)", "accuracy")[1:] == ours
    assert read.row("MNLI mismatched")[2:] == ["88.50 ± 0.50", "82.07", "58.50 ± 0.50", "81.82"]
    squad = ["87.50 ± 0.50", "82.18", "83.46", "57.50 ± 0.50", "83.53", "83.94"]
    assert read.row("SQuAD v1.1 (pocket)", "exact match")[2:] == squad
    assert read.row("SQuAD v1.1 (pocket)", "F1")[5] == "59.50 ± 0.50 ▼"
    assert read.row("shared", "d² + 3d, biases d")[2] == "d² + 3d"
    assert "12.94 % is the mixed comparison".replace(" %", "\u00a0%") in read.text
    assert read.row("MRPC (pocket)", "glue/mrpc/train.parquet")[2:] == ["1,200", "3,668", "200", "408"]


def test_the_mean_as_the_paper_takes_it(tmp_path):
    scores = {
        "cola": {"matthews": 50.0},
        "mrpc": {"accuracy": 80.0, "f1": 90.0},
        "stsb": {"pearson": 80.0, "spearman": 82.0},
        "qqp": {"accuracy": 85.0, "f1": 87.0},
        **{task: {"accuracy": 70.0} for task in ("sst2", "mnli", "qnli", "rte")},
    }
    for task, given in scores.items():
        metric = next(iter(given))
        more = {"dev_mismatched": {"accuracy": 60.0}} if task == "mnli" else {}
        other = {"scores": given, "primary": given[metric], "metric": metric, "more_scores": more}
        made.task_record(tmp_path, task, "shared", 1, 30, **other)
    read = Reader(html_page(gather([tmp_path])))
    ours = (50 + 85 + 81 + 86 + 70 + (70 + 60) / 2 + 70 + 70) / 8
    assert read.row("mean", "MRPC and QQP with F1")[2:] == [f"{ours:.2f}", "80.15"]
    shown = (50 + 80 + 80 + 85 + 70 + (70 + 60) / 2 + 70 + 70) / 8  # what the cells show: the primary metric
    assert read.row("mean", "the cells above")[2:] == [f"{shown:.2f}", "80.15"]
    assert read.row("mean", "as printed")[2:] == ["", "80.09"]


def test_what_was_equal_and_what_was_not(read):
    assert read.row("tokens seen", "102,400") == ["tokens seen", "102,400", "yes", "54,067,200,000"]
    parameters = next(row for row in read.rows if row[:1] == ["parameters"] and row[2:3] == ["no"])
    assert parameters[1] == "standard: 498,000; shared: 432,000"
    assert read.row("settings of the operator")[1] == "standard: defaults; shared: role_start signed"
    assert read.row("rows of the epoch")[1:3] == ["COLA 1,200, RTE 1,200", "yes"]
    assert read.row("tested on")[1:3] == ["MNLI, MRPC", "yes"]
    assert "12 of 14 conditions equal for all" in read.text


def test_conditions_of_one_model_are_equal_to_nothing(tmp_path):
    made.write_run(tmp_path / "runs" / "shared", "shared", 1.5)
    read = Reader(html_page(gather([tmp_path])))
    assert read.row("tokens seen", "102,400")[2] == "one model"
    assert "What was equal and what was not: one model" in " ".join(read.text.split())
    assert "conditions equal for all" not in read.text


def test_what_computed_a_pretraining_is_said_where_it_is_known(tmp_path):
    assert not [
        row for row in Reader(html_page(gather([made.write_results(tmp_path)]))).rows if "one-tensor" in str(row)
    ]
    path = tmp_path / "runs" / "shared" / "summary.json"
    made.write(path, json.loads(path.read_text()) | {"how": "attention one-tensor, compiled"})
    read = Reader(html_page(gather([tmp_path])))
    assert read.row("computed by", "standard: not said; shared: attention one-tensor, compiled")[2] == "no"
    assert "attention one-tensor, compiled" in read.row("attention computed by")[1]


def test_methods_come_from_the_recipes(read):
    assert read.row("optimizer.learning_rate") == ["optimizer.learning_rate", "0.003", "yes"]
    assert read.row("model.operator") == ["model.operator", "standard (standard); shared (shared)", "no"]
    role_start = "model.operator_settings.role_start"
    assert read.row(role_start) == [role_start, "not set (standard); signed (shared)", "no"]
    assert not [row for row in read.rows if row[:1] == ["model.operator_settings"]]  # "not set (shared)" would be wrong
    assert read.row("training.epochs", "2") == ["training.epochs", "2", "yes"]
    assert read.row("MNLI", "MRPC")[2] == "entailment against the rest"
    assert read.row("version of torch") == ["version of torch", "2.13.0"]
    assert ["fine-tuning seeds", "1, 2, 3"] in read.rows


def test_a_setting_that_differs_by_task_is_the_same_for_all_models(tmp_path):
    made.write_results(tmp_path)
    for path in sorted((tmp_path / "tasks" / "mrpc").rglob("record.json")):
        record = json.loads(path.read_text())
        record["recipe"]["optimizer"]["learning_rates"] = [0.25]
        made.write(path, record)
    name = "optimizer.learning_rates"
    before = json.loads((tmp_path / "tasks/sst2/shared/seed-1/record.json").read_text())["recipe"]["optimizer"]
    others = f"{before['learning_rates'][0]:g}"
    row = Reader(html_page(gather([tmp_path]))).row(name)
    assert row == [name, f"{others} (MNLI, SQuAD v1.1, SST-2); 0.25 (MRPC)", "yes"]
    path = tmp_path / "tasks/mrpc/shared/seed-1/record.json"
    made.write(path, json.loads(path.read_text().replace("0.25", others)))
    row = Reader(html_page(gather([tmp_path]))).row(name)
    assert row == [name, f"{others} (standard, shared); 0.25 (standard, shared)", "no"]


def test_a_search_before_the_runs_is_in_the_methods(tmp_path):
    made.write_results(tmp_path)
    for rate in (1e-4, 2e-4):
        made.write(tmp_path / f"tasks/sst2/shared/search-{rate:g}/record.json", {"identity": "1", "primary": 50.0})
    row = Reader(html_page(gather([tmp_path]))).row("search.learning_rates")
    assert row[1] == "tried before these runs: 0.0001, 0.0002"


def test_data_of_ones_own_are_not_called_official(tmp_path):
    for seed in (1, 2):
        made.task_record(tmp_path / "tasks", "own", "shared", seed, 30, task_title="reviews")
    read = Reader(html_page(gather([tmp_path])))
    assert read.row("data")[1] == "own data"
    assert "Scores on the development set" in read.text
    assert "scores on GLUE's development sets" not in read.text


def test_cross_task_says_that_models_saw_a_part_of_the_rows(tmp_path):
    made.write_results(tmp_path)
    assert (
        "Trained on part of" not in Reader(html_page(gather([tmp_path]))).text
    )  # the pocket tasks are no part of GLUE
    for path in sorted((tmp_path / "tasks" / "mnli").rglob("record.json")):
        derived = {"subset": True, "train_source": "glue/mnli/train_derived.parquet"}
        made.write(path, json.loads(path.read_text()) | derived)
    text = Reader(html_page(gather([tmp_path]))).text
    assert "Trained on part of the official rows: MNLI 1,200 of 392,702." in text
    assert "train_derived: rows that are not official" in text


def test_figures_lead_to_the_records_they_came_from(text, read):
    records = embedded(text, "all-records")
    ids = {attributes.get("id") for _, attributes in read.elements}
    links = [attributes for tag, attributes in read.elements if tag == "a" and "data-records" in attributes]
    assert len(links) > 100
    assert all(link["href"][1:] in ids for link in links)
    cell = re.search(r'data-records="([\d ]+)">89\.50 ± 0\.50', text)[1]
    behind = [records[int(number)] for number in cell.split()]
    assert [(one["task"], one["model"], one["seed"]) for one in behind] == [("mrpc", "standard", s) for s in (1, 2, 3)]
    assert not re.search(r"data-records=[^>]*>–<", text)
    runs = re.search(r'data-records="([\d ]+)">2\.315 ± 0\.007', text)[1].split()  # the runs of a variant
    assert [records[int(number)]["file"] for number in runs] == [
        f"ablations/shared-signed/seed-{seed}/summary.json" for seed in (1, 2)
    ]


def test_records_are_embedded_whole_but_for_long_lists_and_paths(results, text, gathered):
    records = embedded(text, "all-records")
    assert len(records) == len(gathered.all())
    assert [record["file"] for record in records] == [record["file"] for record in gathered.all()]
    noise = next(record for record in records if record["study"] == "noise")
    assert noise["curves"]["typos"][0]["scores"] == [90.0]
    assert noise["examples"]["clean"] == f"… 200 values, in {noise['file']}"
    assert str(results) not in text
    assert len(text) < 600_000


def test_numbers_that_json_does_not_know_do_not_break_the_page(tmp_path):
    made.task_record(tmp_path, "sst2", "shared", 1, 30, train_seconds=float("nan"), model_path=f"{tmp_path}/runs/x")
    record = embedded(html_page(gather([tmp_path])), "all-records")[0]
    assert record["train_seconds"] == "nan"
    assert record["model_path"] == "runs/x"


def test_all_figures_are_in_the_csv(text, gathered):
    rows = list(csv.DictReader(io.StringIO(embedded(text, "all-figures"))))
    found = [r for r in rows if (r["study"], r["task"], r["model"], r["seed"]) == ("finetuning", "mnli", "shared", "2")]
    assert {(r["what"], r["at"]): round(float(r["value"]), 6) for r in found} == {
        ("accuracy", "dev"): 59.0,
        ("f1", "dev"): 59.0,
        ("accuracy", "dev_mismatched"): 58.0,
    }
    assert {row["study"] for row in rows} == {study for study, records in gathered.studies.items() if records}
    seconds = [row for row in rows if row["study"] == "time" and row["model"] == "shared" and row["what"] == "seconds"]
    assert len(seconds) == 6


def test_formulas_do_not_reach_a_spreadsheet(tmp_path):
    made.task_record(tmp_path, "sst2", "x", 1, 30, model="=1+1", operator="shared")
    rows = list(csv.reader(io.StringIO(embedded(html_page(gather([tmp_path])), "all-figures"))))
    assert rows[1][2] == "'=1+1"


def test_nothing_comes_from_elsewhere_and_only_our_script_runs(text, read):
    policy = next(a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for tag, attributes in read.elements:
        assert not {"src", "style", "onclick", "onload", "srcset"} & attributes.keys(), (tag, attributes)
        assert attributes.get("href", "#").startswith("#")
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
    assert sum(tag == "script" for tag, _ in read.elements) == 3
    assert "url(" not in text
    assert "@import" not in text


def test_tables_say_what_their_cells_are(read):
    headers = [attributes for tag, attributes in read.elements if tag == "th"]
    assert all(attributes.get("scope") in ("col", "row") for attributes in headers)
    captions = sum(tag == "caption" for tag, _ in read.elements)
    assert captions == sum(tag == "table" for tag, _ in read.elements) > 20
    labelled = [attributes for tag, attributes in read.elements if tag == "section"]
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert all(attributes["aria-labelledby"] in ids for attributes in labelled)
    assert len(ids) == len(set(ids))


def test_parts_without_records_name_the_command(tmp_path):
    made.inspect_record(tmp_path, "shared")
    read = Reader(html_page(gather([tmp_path])))
    assert read.text.count("No records of this part") == len(PARTS) - 3
    assert "triune time --task cola,mnli,mrpc,qnli,rte,qqp --out OUT makes them" in read.text
    assert "No records. Make them with `triune transfer MODEL... --out OUT`" in markdown_page(gather([tmp_path]))


def test_hostile_texts_are_texts(hostile):
    text = html_page(gather([hostile]))
    read = Reader(text)
    assert sum(tag == "script" for tag, _ in read.elements) == 3
    assert not any(tag in ("img", "b") and attributes for tag, attributes in read.elements)
    assert not any(name.startswith("on") for _, attributes in read.elements for name in attributes)
    for said in (made.HOSTILE_MODEL, made.HOSTILE_TASK.replace("`", ""), made.HOSTILE_LINK, made.HOSTILE_RUN):
        assert said in read.text.replace("`", "")
    assert any(record.get("model") == made.HOSTILE_MODEL for record in embedded(text, "all-records"))


def test_hostile_texts_are_texts_in_markdown_and_cards(hostile, tmp_path):
    found = gather([hostile])
    text = markdown_page(found)
    write_report([hostile], tmp_path / "cards", "cards", found)
    cards = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "cards").iterdir()}
    assert sorted(cards) == ["b-onclick-alert-4-bold.md", "script-alert-1-script.md", "standard.md"]
    for written in (text, *(card.split("---", 2)[2] for card in cards.values())):
        assert not re.search(r"<(script|img|b)\b", written)
        assert "](javascript" not in written
    assert "&lt;script>alert(1)&lt;/script>" in text


def test_markdown_has_the_same_tables(gathered):
    text = markdown_page(gathered)
    assert text.startswith("# Does self-attention need separate weights?\n\n**One pre-training of each")
    assert "two kinds of attention. shared − standard (not tested): validation loss +0.300 nats, mean score" in text
    assert "| MRPC (pocket) | accuracy | 89.50 ± 0.50 | 87.27 | 59.50 ± 0.50 ▼ | 88.14 |" in text
    for heading in ("## Figure 2", "## Table 1", "## Table 6", "## Figure 3", "## Looking inside", "## Methods"):
        assert heading in text


def test_cards_are_what_the_hub_reads(results, gathered, tmp_path):
    from huggingface_hub import ModelCard

    write_report([results], tmp_path, "cards", gathered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared.md", "standard.md"]
    text = (tmp_path / "shared.md").read_text(encoding="utf-8")
    card = ModelCard(text)
    assert card.data.library_name == "transformers"
    assert card.data.license is None
    assert "shared-attention" in card.data.tags
    values = {(one.dataset_name, one.metric_type): one.metric_value for one in card.data.eval_results}
    assert values[("MRPC (pocket)", "accuracy")] == 59.5
    assert all(one.dataset_type == "pocket" for one in card.data.eval_results)  # never called GLUE
    assert "role_start signed" in text
    assert "Shown to be worse than standard on MRPC (pocket) (p " in text
    assert "| MRPC (pocket) | accuracy | 59.50 ± 0.50 (3) | 200 |" in text


def test_cards_of_real_data_name_the_set(tmp_path):
    from huggingface_hub import ModelCard

    made.task_record(tmp_path, "sst2", "shared", 1, 30, dev_rows=872)
    write_report([tmp_path], tmp_path / "cards", "cards")
    result = ModelCard.load(tmp_path / "cards" / "shared.md").data.eval_results[0]
    assert (result.dataset_type, result.dataset_config) == ("nyu-mll/glue", "sst2")


def test_the_command_writes_beside_the_results(command, tmp_path):
    made.task_record(tmp_path, "sst2", "shared", 1, 30, model_path=str(tmp_path / "runs" / "shared" / "model"))
    for kind, name in (("html", "report.html"), ("md", "report.md"), ("cards", "cards/shared.md")):
        done = command("report", tmp_path, "--format", kind)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).is_file()
    assert command("report", tmp_path, "--out", tmp_path / "by-name.md").returncode == 0
    assert (tmp_path / "by-name.md").read_text() == (tmp_path / "report.md").read_text()
    (tmp_path / "by-name.md").unlink()
    assert command("report", tmp_path, "--format", "records", "--out", tmp_path / "all").returncode == 0
    whole = json.loads((tmp_path / "all" / "records.json").read_text())
    assert whole["records"][0]["primary"] == 85.0
    assert whole["records"][0]["model_path"] == "runs/shared/model"
    (tmp_path / "mine.csv").write_text("precious")
    for kind, ending in (("html", ".html"), ("md", ".md")):
        refused = command("report", tmp_path, "--format", kind, "--out", tmp_path / "mine.csv")
        assert refused.returncode == 2
        assert f"ends in {ending}" in refused.stderr
    assert (tmp_path / "mine.csv").read_text() == "precious"
    again = command("report", tmp_path)  # what it wrote itself is no record
    assert again.returncode == 0


def test_variants_without_their_record_are_a_plain_table(results, gathered):
    parts = {**gathered.studies, "ablations": []}
    read = Reader(html_page(replace(gathered, studies=parts)))
    assert read.row("shared-signed", "2") == ["shared-signed", "2", "432,000", "2.315 ± 0.007"]


def test_rates_that_were_searched_for_fine_tuning_are_shown(tmp_path):
    for model, given in (("standard", 2e-4), ("shared", 4e-4)):
        recipe = made.task_record(tmp_path / "tasks", "mrpc", model, 1, 20)["recipe"]
        recipe["optimizer"]["learning_rates"] = [given]
        made.task_record(tmp_path / "tasks", "mrpc", model, 1, 20, recipe=recipe)
        for rate in ("0.0001", "0.0002", "0.0004-from-2"):
            made.write(tmp_path / "tasks" / "mrpc" / model / f"search-{rate}" / "record.json", {"primary": 1.0})
    found = gather([tmp_path])
    assert found.notes == []
    (table,) = tuned_rates_tables(found["finetuning"], found.searched)
    assert table.rows == [["MRPC (pocket)", "0.0002", "0.0004, at the edge"]]
    assert "Of 0.0001, 0.0002, 0.0004, tried once each" in table.notes[0]
    assert "1 of 2 lie at the edge" in table.notes[0]
    assert tuned_rates_tables(found["finetuning"], {}) == []
