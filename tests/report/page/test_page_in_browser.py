"""Tests of interaction with the page in a real browser."""

import json
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

REPORTED = ["baseline", "naive-mpc", "naive-zfp8", "identity", "mzhybrid"]
ASCENDING = ["baseline", "mzhybrid", "naive-zfp8", "naive-mpc", "identity"]
DESCENDING = ["naive-zfp8", "mzhybrid", "baseline", "naive-mpc", "identity"]
"""Sorted by samples/s. Unknown values are sorted last in both directions."""


def test_opens_from_a_file_without_an_error_or_a_request(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.run("return document.fonts.ready.then(() => 1)")
    assert browser.driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}


def test_the_policy_stops_what_is_not_the_pages_own(browser: Any, page: Path, tmp_path: Path) -> None:
    foreign = '<script>window.canary = 1</script><img src="file:///x.png"><p id="foreign" style="color: red">x</p>'
    altered = tmp_path / "altered.html"
    altered.write_text(page.read_text().replace("</main>", f"{foreign}</main>"))
    browser.open(altered)
    assert browser.run("return window.canary") is None
    assert browser.run("return getComputedStyle(document.querySelector('#foreign')).color") != "rgb(255, 0, 0)"
    assert len([entry for entry in browser.driver.get_log("browser") if "Content Security" in entry["message"]]) >= 3


def test_the_answer_comes_before_the_tables(browser: Any, page: Path) -> None:
    browser.open(page)
    parts = browser.run("return [...document.querySelectorAll('main :is(h2, h3, .answer)')].map((e) => e.textContent)")
    assert [text.split("\n")[:2][-1] for text in parts[:7]] == [
        "gpt-tiny, 8 ranks",
        "Yes. On this machine compression pays. Best: mzhybrid.",
        "Loss against steps",
        "Comparison",
        "Runs",
        "Trouble",
        "Notes",
    ]


def test_columns_sort_by_value_with_a_click(browser: Any, page: Path) -> None:
    browser.open(page)
    button = _sort_button(browser, "comparison", "samples_per_s")
    for expected, direction in ((ASCENDING, "ascending"), (DESCENDING, "descending"), (REPORTED, None)):
        button.click()
        assert browser.column("comparison", "scheme") == expected
        assert browser.run("return arguments[0].closest('th').ariaSort", button) == direction
    _sort_button(browser, "comparison", "scheme").click()
    assert browser.column("comparison", "scheme") == sorted(REPORTED)
    assert browser.column("runs", "run")[0] == "r1-baseline", "another table was sorted"


def test_columns_sort_with_the_keyboard_alone(browser: Any, page: Path) -> None:
    browser.open(page)
    _tab_to(browser, "table[data-name=comparison] th[data-name=samples_per_s] button")
    for key, expected in ((Keys.ENTER, ASCENDING), (Keys.SPACE, DESCENDING)):
        _press(browser, key)
        assert browser.column("comparison", "scheme") == expected
    style = browser.run("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]")
    assert style[0] != "none" and float(style[1].removesuffix("px")) >= 2


def test_the_skip_link_leads_past_the_controls(browser: Any, page: Path) -> None:
    browser.open(page)
    _press(browser, Keys.TAB)
    assert browser.run("return document.activeElement.className") == "skip"
    box = browser.run("const b = document.activeElement.getBoundingClientRect(); return [b.left, b.top]")
    assert min(box) >= 0, "the skip link cannot be seen"
    _press(browser, Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "report"


def test_the_filter_hides_rows_and_says_how_many_are_left(browser: Any, page: Path) -> None:
    browser.open(page)
    _open_filter(browser)
    assert _announced(browser) == "9 of 9 rows shown"
    _tab_to(browser, "input[type=search]")
    _press(browser, "MZHYBRID fail")
    assert browser.column("runs", "run") == ["r2-mzhybrid"] and browser.column("comparison", "scheme") == []
    assert _announced(browser) == "1 of 9 rows shown"
    assert browser.run("return document.querySelector('[data-name=runs] .shown').textContent") == "1 of 4 rows"
    browser.driver.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    assert _announced(browser) == "9 of 9 rows shown"


def test_a_choice_of_scheme_or_state_holds_where_there_is_such_a_column(browser: Any, page: Path) -> None:
    browser.open(page)
    _open_filter(browser)
    _tab_to(browser, "select[name=scheme]")
    _press(browser, "mz")
    assert browser.column("comparison", "scheme") == ["mzhybrid"]
    assert browser.column("runs", "run") == ["r1-mzhybrid", "r2-mzhybrid"]
    _tab_to(browser, "select[name=state]")
    _press(browser, "fail")
    assert browser.column("comparison", "scheme") == ["mzhybrid"] and browser.column("runs", "run") == ["r2-mzhybrid"]
    assert _announced(browser) == "2 of 9 rows shown"


def _open_filter(browser: Any) -> None:
    browser.driver.find_element(By.CSS_SELECTOR, "nav summary").click()


def test_without_scripts_every_row_is_there_and_no_control_that_does_nothing(browser: Any, page: Path) -> None:
    browser.open(page, scripts=False)
    assert browser.column("comparison", "scheme") == REPORTED and len(browser.column("runs", "run")) == 4
    dead = browser.driver.find_elements(By.CSS_SELECTOR, "button, input, select, output")
    assert dead and not any(element.is_displayed() for element in dead)


def test_figures_and_reasons_lead_to_the_line_that_they_were_read_from(browser: Any, page: Path) -> None:
    browser.open(page)
    links = browser.run("return [...document.querySelectorAll('main .block a[href^=\"#line-\"]')]")
    assert len(links) == 5, "four losses and a reason"
    for link in links:
        place, target = browser.run(
            "const a = arguments[0], line = document.querySelector(a.getAttribute('href'));"
            "return [a.dataset.source ?? a.textContent, line.querySelector('code').textContent]",
            link,
        )
        name, _, number = place.rpartition(":")
        assert (page.parent / name).read_text().split("\n")[int(number) - 1] == target
    reason = links[-1]
    assert reason.text == "runs/r2-mzhybrid/err.txt:2"
    reason.click()
    seen = browser.run("const b = document.querySelector(':target').getBoundingClientRect(); return [b.top, b.bottom]")
    assert 0 <= seen[0] < seen[1] <= 900


def test_a_figure_that_has_the_focus_tells_its_source(browser: Any, page: Path) -> None:
    browser.open(page)
    _tab_to(browser, "[data-name=runs] tbody tr:first-child a.source")
    shown = browser.run("return getComputedStyle(document.activeElement, '::after').content")
    assert "runs/r1-baseline/log.txt:15" in shown


def test_files_that_lie_beside_the_page_are_linked(browser: Any, page: Path) -> None:
    browser.open(page)
    links = browser.run("return [...document.querySelectorAll('a[href^=\"./\"]')].map((a) => a.getAttribute('href'))")
    assert {"./runs/r2-mzhybrid/err.txt", "./study.yaml"} <= set(links)
    assert all((page.parent / link).is_file() for link in links)


def test_a_link_opens_what_it_leads_into(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('#provenance pre').id = 'inside'; location.hash = '#inside'")
    browser.run("return new Promise((done) => setTimeout(done, 50))")
    assert browser.run("return document.querySelector('#inside').closest('details').open")


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_screen_does_not_scroll_sideways(browser: Any, page: Path, width: int) -> None:
    browser.open(page, width=width)
    browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def _sort_button(browser: Any, table: str, column: str) -> Any:
    return browser.driver.find_element(By.CSS_SELECTOR, f"table[data-name={table}] th[data-name={column}] button")


def _announced(browser: Any) -> str:
    script = "const o = document.querySelector('form output[aria-live=polite]'); return o.value"
    return str(browser.run("return new Promise((done) => setTimeout(done, 20)).then(() => {" + script + "})"))


def _press(browser: Any, keys: str) -> None:
    browser.driver.switch_to.active_element.send_keys(keys)


def _tab_to(browser: Any, selector: str) -> None:
    """Move the focus only with the Tab key."""
    for _ in range(60):
        if browser.run("return document.activeElement.matches(arguments[0])", selector):
            return
        _press(browser, Keys.TAB)
    pytest.fail(f"the Tab key does not reach {selector}")
