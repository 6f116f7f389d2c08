"""Tests of the page content, read without a browser."""

import base64
import hashlib
import html
import re
from pathlib import Path

import pytest

from hpcbench.collect.submission import Submission
from hpcbench.present.document import Chapter, Column, Document, Entry, Sentences, Table
from hpcbench.present.page import sort_key
from hpcbench.present.page.safe import Stylesheet, inline
from hpcbench.report.main import report
from hpcbench.report.page import write
from hpcbench.report.page.sources import LONGEST, MOST_LINES, Citations, list_files


def cite(*sources: str) -> Document:
    """Return a report with figures from given locations."""
    rows = tuple((Entry("1", 1, source=source),) for source in sources)
    return Document("cited", (Chapter("one", "", (Table("t", "", (Column("n", "n"),), rows),)),))


def test_the_policy_names_the_hashes_of_the_pages_own_style_and_script(page: Path) -> None:
    text = page.read_text()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])  # type: ignore[index]
    for directive, element in (("style-src", "style"), ("script-src", "script")):
        content = re.search(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert content is not None
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert " style=" not in text and not re.search(r"\son\w+=", text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (float("nan"), None), (float("inf"), "Infinity"), (1e-9, "1e-09"), (3, "3"), ("x", "x")],
)
def test_rows_are_ordered_by_what_javascript_reads(value: float | str | None, expected: str | None) -> None:
    assert sort_key(Entry("shown", value)) == expected


def test_a_cited_line_is_read_whole_or_says_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    long = "x" * (1 << 18)
    log.write_bytes(b"first\r\n" + long.encode() + b"\nthird\xff\nlast, cut")
    citations = Citations([], None)
    targets = {n: citations.target(f"{log}:{n}") for n in (4, 1, 2, 3, 5, 0)}
    ((path, lines),) = citations.files()
    assert path == log and [line.number for line in lines] == [0, 1, 2, 3, 4, 5]
    assert {line.number: f"#{line.anchor}" for line in lines} == targets
    assert [(line.text, line.omitted) for line in lines] == [
        ("[the file does not contain this line]", 0),
        ("first", 0),
        (long[:LONGEST], len(long) - LONGEST),
        ("third\ufffd", 0),
        ("last, cut", 0),
        ("[the file does not contain this line]", 0),
    ]


def test_a_file_that_is_gone_is_cited_without_its_line(tmp_path: Path) -> None:
    text = write(cite(f"{tmp_path}/gone.txt:7"), [])
    assert f'data-source="{tmp_path}/gone.txt:7"' in text and 'href="#line-' not in text


def test_lines_beyond_the_bound_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("line\n" * (MOST_LINES + 5))
    citations = Citations([], None)
    targets = [citations.target(f"{log}:{n + 1}") for n in range(MOST_LINES + 5)]
    assert all(targets[:MOST_LINES]) and not any(targets[MOST_LINES:]) and citations.left_out == 5
    assert [len(lines) for _, lines in citations.files()] == [MOST_LINES]


def test_only_what_is_known_to_be_a_place_becomes_a_link(planted: Submission) -> None:
    citations = Citations([planted], None)
    where = next(run.verdict.where for run in planted.runs if run.state == "failed")
    assert where
    assert citations.linked(f"<b> ({where}) /etc/passwd:1") == (
        f'&lt;b&gt; (<a href="{citations.target(where)}">runs/r2-mzhybrid/err.txt:2</a>) /etc/passwd:1'
    )


def test_sentences_lead_to_the_lines_of_logs_that_they_name(planted: Submission, tmp_path: Path) -> None:
    assert planted.runs[0].log is not None and planted.root is not None
    other = tmp_path / "secret.txt"
    other.write_text("a private line\n")
    log = planted.runs[0].log.where(3)
    sentences = Sentences((f"r1: {log}: the samples/s printed differ, and {other}:1 is quoted",), "warning")
    text = write(Document("", (Chapter("", "", (sentences,)),)), [planted], planted.root)
    assert re.search(r'<a href="#line-\d+">runs/r1-baseline/log.txt:3</a>: the samples/s', text)
    assert "nobody" not in text


def test_files_outside_the_pages_directory_are_not_linked(planted: Submission, tmp_path: Path) -> None:
    assert planted.root is not None
    inside = planted.root / "study.yaml"
    assert Citations([planted], planted.root).href(inside) == "./study.yaml"
    assert Citations([planted], tmp_path).href(inside) == ""
    assert Citations([planted], None).href(inside) == ""


def test_provenance_leads_to_its_lines_and_holds_no_variables(planted: Submission, page: Path) -> None:
    text = page.read_text()
    assert "scheme: [baseline, mzhybrid]" in text and "Ranks, as the launcher placed them" in text
    event = next(line for line in text.splitlines() if "MPICH 5.0.2" in line and "<th" in line)
    assert 'href="#line-' in event and 'data-source="runs/r1-baseline/log.txt:2"' in event
    assert "hunter2" not in text, "variables may contain secrets"
    assert [item.title for item in list_files(planted)] == ["Study file"]


def test_a_drawing_has_no_style_of_its_own_and_ids_of_its_own() -> None:
    svg = (
        '<?xml version="1.0"?><!-- made --><svg xmlns="http://www.w3.org/2000/svg" width="9pt"><style>* { }</style>'
        '<metadata>m</metadata><defs><clipPath id="c"/></defs><g style="fill: #ffffff;  clip-path: url(#c)">'
        '<use xlink:href="#c" style="fill: #ffffff; clip-path: url(#c)"/>'
        '<text>&lt;b&gt; style="#fff"\u202e</text></g></svg>'
    )
    styles = Stylesheet()
    drawn = inline(svg, "p1", 'a "name"', styles)
    assert drawn == (
        '<svg xmlns="http://www.w3.org/2000/svg"  role="img" class="plot" aria-label="a &#34;name&#34;">'
        '<defs><clipPath id="p1-c"/></defs><g class="plot-1">'
        '<use xlink:href="#p1-c" class="plot-1"/><text>&lt;b&gt; style="#fff"\u27e8U+202E\u27e9</text></g></svg>'
    )
    assert styles.css == ".plot-1 { fill: var(--paper); clip-path: url(#p1-c) }"


def test_the_report_writes_the_page_by_the_suffix_of_its_file(planted: Submission, tmp_path: Path) -> None:
    assert planted.root is not None
    path = tmp_path / "report.html"
    assert report([planted.root], output=path) == 1, "a run failed"
    text = path.read_text()
    assert text.startswith("<!doctype html>\n") and "r2-mzhybrid: failed" in text
    assert text.count("<svg ") >= 2 and text.count("<table data-name=") >= 3, "all figures and tables"
    assert ">runs/r2-mzhybrid/err.txt:2</a>" in text


def test_a_thousand_runs_make_a_page_of_some_megabytes(tmp_path: Path) -> None:
    columns = (Column("run", "run", text=True), *(Column(f"c{i}", f"c{i}") for i in range(11)))
    rows = []
    for n in range(1000):
        log = tmp_path / f"run-{n}" / "log.txt"
        log.parent.mkdir()
        log.write_text(("step 1/50 | loss 2.512660 | " + "x" * 150 + "\n") * 4)
        sources = [f"{log}:{1 + i}" for i in range(4)]
        figures = [Entry(f"{n + i / 7:.4f}", n + i / 7, source=sources[i % 4]) for i in range(11)]
        rows.append((Entry(f"run-{n}", f"run-{n}"), *figures))
    sentences = Sentences(tuple(f"run-{n}: failed" for n in range(1000)), "bad")
    document = Document("large", (Chapter("one", "", (Table("runs", "", columns, tuple(rows)), sentences)),))
    page_text = write(document, [])
    assert page_text.count("<tr>") == 1001 and page_text.count('<li id="line-') == 4000
    assert len(page_text.encode()) < 5e6
