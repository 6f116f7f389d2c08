"""Tests that hostile names and log lines appear on the page only as text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.collect.submission import Submission
from hpcbench.contract.submission import RunPlan
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Chapter, Column, Document, Entry, Figure, Sentences, Table
from hpcbench.present.page.safe import visible
from hpcbench.report.page import write

HOSTILE = [
    "</script><script>window.canary = 1</script>",
    '"><img src=x onerror="window.canary = 1">',
    "' autofocus onfocus='window.canary = 1' x='",
    "</style></title></textarea><svg onload=window.canary=1>",
    "{{ 7 * 7 }}{% raw %}",
    "<!-- ]]> &lt;b&gt; &amp;",
    "javascript:window.canary=1",
    "cod\u202eexe.\u2066fdp",
    "nul\x00 bell\x07 escape\x1b[31m \x7f",
    "lone \udcff surrogate",
    "line\u2028break",
]
DRAWN = [HOSTILE[0], HOSTILE[3], HOSTILE[7], HOSTILE[8]]
"""Names that also appear on a plot, whose builder sanitizes them."""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("plain, \u00e9, \u4e2d, \u05d0, \u00a0", "plain, \u00e9, \u4e2d, \u05d0, \u00a0"),
        ("a\x00b\x1b[0m", "a\u2400b\u241b[0m"),
        ("a\u202eb", "a\u27e8U+202E\u27e9b"),
        ("two\nlines\tand\ttabs", "two\nlines\tand\ttabs"),
        ("\udcff\x7f", "\u27e8U+DCFF\u27e9\u2421"),
    ],
)
def test_what_cannot_be_seen_shows_itself(message: str, expected: str) -> None:
    assert visible(message) == expected


@pytest.fixture(scope="module")
def hostile_page(planted: Submission, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page that shows each name at every possible location."""
    directory = tmp_path_factory.mktemp("hostile")
    (directory / "study.yaml").write_text("\n".join(HOSTILE), errors="surrogateescape")
    log = directory / "log.txt"
    log.write_bytes("\n".join(HOSTILE).replace("\u2028", "").encode(errors="surrogateescape"))
    (directory / "provenance").mkdir()
    expected_values = {"command": HOSTILE, "host": HOSTILE[0], "packages": dict.fromkeys(HOSTILE, HOSTILE[1])}
    (directory / "provenance" / "submit.json").write_text(json.dumps(expected_values))
    chapters = []
    for i, hostile_text in enumerate(HOSTILE):
        columns = (Column("scheme", hostile_text, text=True, help=hostile_text), Column(hostile_text, hostile_text))
        rows = tuple((Entry(name, name), Entry(hostile_text, i, source=f"{log}:{i + 1}")) for name in HOSTILE)
        blocks = (
            Table(hostile_text, hostile_text, columns, rows, notes=(hostile_text,)),
            Sentences((hostile_text, f"reason ({log}:{i + 1})")),
            Sentences((hostile_text,), "bad"),
        )
        drawn = [
            Figure(
                hostile_text,
                hostile_text,
                hostile_text,
                lambda figure, text=hostile_text: figure.text(0, 0, make_printable(text)),
            )
        ]
        chapters.append(Chapter(hostile_text, hostile_text, (*blocks, *(drawn if hostile_text in DRAWN else ()))))
    plan = RunPlan(study=HOSTILE[0], site=HOSTILE[1], jobs=[], runs=[], time=HOSTILE[2], version=HOSTILE[3])
    run = replace(planted.runs[0], id=HOSTILE[0], scheme=HOSTILE[1], host=HOSTILE[3])
    path = directory / "report.html"
    document = Document(HOSTILE[0], tuple(chapters))
    path.write_text(write(document, [Submission(directory, plan, [run])], directory), encoding="utf-8")
    return path


def test_hostile_names_stay_text(browser: Any, hostile_page: Path) -> None:
    browser.open(hostile_page)
    for hostile_text in HOSTILE:  # sorting and filtering also process them
        browser.run(
            "document.querySelector('th button').click();"
            "const input = document.querySelector('input'); input.value = arguments[0];"
            "input.dispatchEvent(new Event('input', {bubbles: true}))",
            visible(hostile_text).split()[0],
        )
    browser.run("return new Promise((done) => setTimeout(done, 50))")
    assert browser.run("return window.canary") is None
    assert browser.driver.get_log("browser") == []
    assert browser.run("return document.scripts.length") == 1
    assert (
        browser.run("return document.querySelectorAll('img, iframe, svg svg, [onerror], [onload], [onfocus]').length")
        == 0
    )
    titles = browser.run("return [...document.querySelectorAll('h2[id^=chapter]')].map((h) => h.textContent)")
    assert titles == [visible(hostile_text) for hostile_text in HOSTILE]
    captions = browser.run("return [...document.querySelectorAll('figcaption')].map((h) => h.textContent)")
    assert captions == [visible(hostile_text) for hostile_text in DRAWN]


def test_hostile_lines_are_shown_as_they_are(browser: Any, hostile_page: Path) -> None:
    browser.open(hostile_page)
    lines = browser.run("return [...document.querySelectorAll('#lines code')].map((code) => code.textContent)")
    raw = (hostile_page.parent / "log.txt").read_text(errors="replace").split("\n")
    assert set(lines) >= {visible(line) for line in raw} and len(raw) == len(HOSTILE)
