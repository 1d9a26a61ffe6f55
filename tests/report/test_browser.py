"""The page in a real browser. Without one, or without playwright, these tests are skipped."""

import json
import os
import shutil
from collections import Counter

import pytest

from tests.report import made

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = os.environ.get("TRIUNE_CHROMIUM") or next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium was found: install one, or name it in TRIUNE_CHROMIUM"
)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser):
    """Opens a file; at the end there must have been no error, no dialog, and no request but the one for the page."""
    trouble, contexts = [], []

    def open_page(path, **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        address = path.as_uri()
        page.on(
            "request", lambda r: None if r.url.startswith((address, "blob:")) else trouble.append(f"asked: {r.url}")
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def column(page, table, number):
    return page.locator(f"#{table} tbody tr > :nth-child({number})").all_inner_texts()


def test_every_table_and_figure_of_the_paper_is_shown(opened, page):
    shown = opened(page)
    parts = [f"table-{number}" for number in range(1, 8)] + ["figure-2", "figure-3", "ablations", "inside"]
    for part in parts:
        section = shown.locator(f"section#{part}")
        assert section.is_visible()
        assert section.locator("table:visible, svg:visible").count() > 0
    assert shown.locator("#chart-figure-2 svg path").count() == 4
    assert shown.locator("#chart-figure-3 svg rect").count() == 4
    assert shown.get_by_role("main").count() == shown.get_by_role("navigation").count() == 1


def test_models_are_toggled_in_all_charts(opened, page):
    shown = opened(page)
    lines = shown.locator('#chart-figure-2 [data-series="1"]')
    bars = shown.locator('#chart-figure-3 [data-series="1"]')
    assert lines.first.is_visible()
    shown.get_by_label("shared", exact=True).uncheck()
    assert not any(one.is_visible() for one in [*lines.all(), *bars.all()])
    assert shown.locator('#chart-figure-2 [data-series="0"]').first.is_visible()
    assert not shown.locator('#chart-figure-2 [data-legend="1"]').is_visible()
    shown.get_by_label("shared", exact=True).check()
    assert lines.first.is_visible()


def test_tables_are_sorted_by_their_headers(opened, page):
    shown = opened(page)
    table = "table-7-1"
    before = column(shown, table, 4)
    assert before == ["392,702", "3,668", "87,599", "67,349"]  # by the tasks' names
    head = shown.locator(f"#{table} thead th").nth(3)
    button = head.get_by_role("button")
    button.click()
    assert column(shown, table, 4) == ["3,668", "67,349", "87,599", "392,702"]  # numbers, not text
    assert head.get_attribute("aria-sort") == "ascending"
    button.focus()
    shown.keyboard.press("Enter")
    assert column(shown, table, 4) == ["392,702", "87,599", "67,349", "3,668"]
    assert head.get_attribute("aria-sort") == "descending"
    shown.locator(f"#{table} thead th").first.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none"
    names = [f"{name} (pocket)" for name in ("MNLI", "MRPC", "SQuAD v1.1", "SST-2")]
    assert column(shown, table, 1) == names


def test_rows_that_sum_up_the_others_stay_at_the_end(opened, page):
    shown = opened(page)
    button = shown.locator("#table-6-1 thead th").first.get_by_role("button")
    ours, pinned = ["MNLI", "MRPC"], ["always the larger class", "MNLI, paper", "MRPC, paper"]
    assert column(shown, "table-6-1", 1) == [*ours, *pinned]
    button.click()
    button.click()
    assert column(shown, "table-6-1", 1) == [*reversed(ours), *pinned]


def test_cells_of_all_kinds_are_ordered(opened, page):
    """Signs, percent, spreads, thousands and bounds; what holds nothing comes last, whichever way."""
    shown = opened(page)
    cells = ["12.9 %", "−3.00 ± 1.0", "< 0.001", "1,024", "–", "+2.5 †", ""]
    shown.evaluate(
        """cells => {
            const body = document.querySelector("#table-7-1 tbody");
            const rows = [...body.rows];
            cells.forEach((text, number) => { if (rows[number]) rows[number].cells[2].textContent = text; });
        }""",
        cells[:4],
    )
    button = shown.locator("#table-7-1 thead th").nth(2).get_by_role("button")
    button.click()
    assert column(shown, "table-7-1", 3) == ["−3.00 ± 1.0", "< 0.001", "12.9 %", "1,024"]
    shown.evaluate(
        """cells => [...document.querySelectorAll("#table-7-1 tbody tr")].forEach((row, number) => {
            row.cells[2].textContent = cells[number];
        })""",
        [cells[4], cells[5], cells[0], cells[6]],
    )
    button.click()
    assert column(shown, "table-7-1", 3)[:2] == ["12.9 %", "+2.5 †"]
    assert Counter(column(shown, "table-7-1", 3)[2:]) == Counter(["–", ""])


def test_charts_are_read_off_by_pointer_and_by_keys(opened, page):
    shown = opened(page)
    plot = shown.locator("#chart-figure-2 .plot")
    readout = plot.locator(".readout")
    assert not readout.is_visible()
    plot.scroll_into_view_if_needed()
    box = plot.locator("svg").bounding_box()
    shown.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] / 2)
    assert readout.is_visible()
    assert readout.inner_text().split("\n")[0] == "102 k"
    assert "standard, validation" in readout.inner_text()
    assert "1.3" in readout.inner_text()
    shown.mouse.move(5, 5)
    assert not readout.is_visible()
    plot.focus()
    shown.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("20.5 k")
    shown.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("41 k")
    shown.get_by_label("shared", exact=True).uncheck()
    plot.focus()
    shown.keyboard.press("ArrowLeft")
    assert "shared" not in readout.inner_text()
    shown.keyboard.press("Escape")
    assert not readout.is_visible()


def test_charts_are_read_off_by_touch(opened, page):
    shown = opened(page, has_touch=True, viewport={"width": 390, "height": 800})
    plot = shown.locator("#chart-figure-3 .plot")
    plot.tap()
    assert "by arithmetic" in plot.locator(".readout").inner_text()


def test_a_figure_opens_its_records_and_one_comes_back(opened, page):
    shown = opened(page)
    link = shown.locator("#table-1-1 tbody tr").first.locator("a").first
    link.click()
    found = shown.locator("details.record.found")
    assert found.count() == 3
    record = json.loads(found.first.locator("pre").inner_text())
    assert (record["task"], record["model"], record["seed"]) == ("mrpc", "standard", 1)
    assert found.first.locator("summary").is_visible()
    found.first.get_by_role("button", name="Back to the figure").click()
    assert link.evaluate("element => element === document.activeElement")


def test_an_address_with_a_record_opens_it(opened, page):
    shown = opened(page)
    shown.evaluate("location.hash = '#record-0'")
    shown.wait_for_selector("#record-0[open] pre")
    assert json.loads(shown.locator("#record-0 pre").inner_text())["study"] == "parameters"


def test_records_can_be_downloaded(opened, page, gathered):
    shown = opened(page)
    contents = {}
    for button, name in (
        ("Download all records (JSON)", "records.json"),
        ("Download all figures (CSV)", "records.csv"),
    ):
        with shown.expect_download() as download:
            shown.get_by_role("button", name=button).click()
        assert download.value.suggested_filename == name
        contents[name] = download.value.path().read_text(encoding="utf-8")
    assert len(json.loads(contents["records.json"])["records"]) == len(gathered.all())
    assert contents["records.csv"].startswith("study,file,model,operator,task,seed,what,at,value\n")


@pytest.mark.parametrize("width", [390, 800, 1000, 1280])
def test_no_verdict_lies_on_its_text(opened, page, width):
    shown = opened(page, viewport={"width": width, "height": 800})
    overlaps = """chips => chips.map(chip => {
        const [a, b] = [chip, chip.parentElement.querySelector("p")].map(one => one.getBoundingClientRect());
        return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    })"""
    widest = "document.querySelectorAll('.chip').forEach(chip => { chip.textContent = 'for standard: 10 of 15'; })"
    shown.evaluate(widest)
    found = shown.locator(".chip").evaluate_all(overlaps)
    assert found == [False] * len(found)
    assert len(found) >= 5


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_sideways_scrolling(opened, page, width):
    shown = opened(page, viewport={"width": width, "height": 800})
    for state in ("closed", "open"):
        if state == "open":
            shown.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert shown.evaluate("document.scrollingElement.scrollWidth") <= width
    wide = shown.locator(".table-box").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
    )
    assert wide > 0  # they scroll in their own boxes


def test_both_themes_and_the_choice_between_them(opened, page):
    def ground(shown):
        return shown.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = opened(page, color_scheme="light"), opened(page, color_scheme="dark")
    grounds = {"light": ground(light), "dark": ground(dark)}
    assert grounds["light"] != grounds["dark"]
    button = dark.locator("button.theme")
    button.click()
    assert ground(dark) == grounds["light"]
    button.click()
    button.click()
    assert ground(dark) == grounds["dark"]
    assert button.inner_text() == "Theme: as the system"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(opened, page, scheme):
    """Contrast of 4.5 : 1 for all text, against the ground that it stands on."""
    shown = opened(page, color_scheme=scheme)
    shown.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    weak = shown.evaluate(
        """() => {
            const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
            const light = colour => numbers(colour).slice(0, 3).map(one => one / 255)
                .map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
                .reduce((sum, one, at) => sum + one * [.2126, .7152, .0722][at], 0);
            const ground = element => {
                for (; element; element = element.parentElement) {
                    const colour = getComputedStyle(element).backgroundColor;
                    if (numbers(colour)[3] !== 0) return colour;
                }
            };
            const found = new Set();
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                const element = walker.currentNode.parentElement;
                if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
                const style = getComputedStyle(element);
                const [a, b] = [light(element.closest("svg") ? style.fill : style.color), light(ground(element))];
                const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
                if (ratio < 4.5) found.add(`${ratio}: ${element.outerHTML.slice(0, 90)}`);
            }
            return [...found];
        }"""
    )
    assert weak == []


def test_on_paper_all_is_light_open_and_whole(opened, page):
    shown = opened(page, color_scheme="dark")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown.emulate_media(media="print")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert shown.locator("#table-1-conditions").is_visible()
    for hidden in (".toggles", "button.theme", ".contents", ".downloads"):
        assert not shown.locator(hidden).is_visible()
    shown.set_viewport_size({"width": 690, "height": 1000})  # A4 inside its margins
    cut = shown.locator("table:visible").evaluate_all(
        "all => all.filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.id)"
    )
    assert cut == []
    assert shown.pdf().startswith(b"%PDF")
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not shown.locator("#table-1-conditions").is_visible()


def test_the_page_is_whole_without_scripts(opened, page):
    shown = opened(page, java_script_enabled=False)
    assert shown.locator("#chart-figure-2 svg path").count() == 4
    assert shown.locator("#table-1-1").is_visible()
    for hidden in (".toggles", "button.theme", ".downloads"):
        assert not shown.locator(hidden).is_visible()


def test_hostile_names_are_shown_as_text(opened, hostile, tmp_path):
    from triune.report.page import write_report

    shown = opened(write_report([hostile], tmp_path / "report.html"))
    shown.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    shown.wait_for_timeout(200)
    text = shown.locator("body").inner_text()
    assert made.HOSTILE_MODEL in text
    assert made.HOSTILE_RUN in text
    assert "<img src=x onerror=alert(2)>" in text
    assert "{{ 7 * 7 }}" in text
    assert shown.locator("main img, main b[onclick], a[href^=javascript]").count() == 0
    plot = shown.locator("#chart-figure-2 .plot")
    plot.focus()
    shown.keyboard.press("ArrowRight")
    assert made.HOSTILE_RUN in plot.locator(".readout").inner_text()
