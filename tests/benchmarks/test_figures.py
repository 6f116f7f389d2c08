"""Tests that figures in the documentation equal stored results, and tests of the script that copies the figures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stored_results import ROOT

FAST = "fast: 1 run\nname   ms\na    1.50   \nb    2.25\ngoal: 1.50, met\n"
SLOW = "slow: 1 run\na    9.00\ngoal: 9.00, missed\n"


def figures(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "figures.py"), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "results" / "reference"
    directory.mkdir(parents=True)
    (directory / "x.txt").write_text(f"# command: x\n{FAST}{SLOW}")
    (directory / "x.json").write_text(json.dumps({"rows": [{"ratio": 1.2345}]}))
    return tmp_path


def name_figure(root: Path, source: str, key: str) -> str:
    """Return the marker of a named figure."""
    (root / "docs").mkdir()
    (root / "docs" / "figures.ini").write_text(f"[results/reference/{source}]\nA/figure = {key}\n")
    return "<!-- =A/figure -->"


def filled(root: Path, document: str) -> str:
    """Return the document with copied figures. Copying the figures a second time must be a no-op."""
    path = root / "README.md"
    path.write_text(document)
    done = figures(root)
    assert done.returncode == 0, done.stderr
    checked = figures(root, "--check")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    return path.read_text()


def test_the_documentation_shows_what_is_stored() -> None:
    done = figures(ROOT, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "<!-- from results/reference/" in (ROOT / "README.md").read_text(), "there is something to hold together"


def test_every_named_figure_is_shown_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = set(re.findall(r"<!-- =(\S+) -->", "".join(page.read_text() for page in pages)))
    names = [line.split(" = ")[0] for line in (ROOT / "docs" / "figures.ini").read_text().splitlines() if " = " in line]
    assert len(names) == len(set(names)) > 100 and set(names) == shown


def test_a_block_is_left_alone_until_its_result_is_stored(root: Path) -> None:
    marker = '<!-- from results/reference/new.txt when stored: "a" to "a" -->\n{}<!-- end -->\n'
    assert filled(root, marker.format("")) == marker.format("")
    (root / "results" / "reference" / "new.txt").write_text("a 1\n")
    assert filled(root, marker.format("")) == marker.format("```\na 1\n```\n")


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ('"name" to "goal"', ["name   ms", "a    1.50", "b    2.25", "goal: 1.50, met"]),
        ('"slow" to end', ["slow: 1 run", "a    9.00", "goal: 9.00, missed"]),
        ("lines ^a ", ["a    1.50", "a    9.00"]),
    ],
)
def test_blocks(what: str, lines: list[str], root: Path) -> None:
    before, after = "Text <b>\n\n", "\nmore\n"
    begin, end = f"<!-- from results/reference/x.txt: {what} -->\n", "<!-- end -->\n"
    for old in ("", "```\nold\n```\n"):
        text = filled(root, f"{before}{begin}{old}{end}{after}")
        assert text == before + begin + "```\n" + "\n".join(lines) + "\n```\n" + end + after


@pytest.mark.parametrize(
    ("source", "key", "figure"),
    [
        ("x.txt", "^goal: ([0-9.]+), met", "1.50"),
        ("x.txt", 'after "slow" ^goal: ([0-9.]+)', "9.00"),
        ("x.txt", "^# (com.*): x", "command"),
        ("x.json", "rows/0/ratio .2f", "1.23"),
        ("x.json", "rows/0/ratio", "1.2345"),
    ],
)
def test_figures_in_a_sentence(source: str, key: str, figure: str, root: Path) -> None:
    marker = name_figure(root, source, key)
    assert filled(root, f"It takes {marker}7<!-- end --> s.\n") == f"It takes {marker}{figure}<!-- end --> s.\n"


def test_a_difference_is_one_line_and_nothing_changes(root: Path) -> None:
    path = root / "README.md"
    marker = name_figure(root, "x.txt", "^goal: ([0-9.]+), met")
    path.write_text(f"line\n{marker}1.49<!-- end --> and {marker}1.50<!-- end -->\n")
    before = path.read_text()
    done = figures(root, "--check")
    assert (
        done.returncode == 1
        and done.stdout == f"{path}:2: differs from results/reference/x.txt: make figures copies it\n"
    )
    assert done.stderr == "" and path.read_text() == before


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ('<!-- from results/reference/gone.txt: "a" to end -->\n<!-- end -->', "gone.txt: No such file"),
        ('<!-- from results/reference/x.txt: "nothing" to end -->\n<!-- end -->', "no lines are"),
        ('<!-- from results/reference/x.txt: "name" to "nothing" -->\n<!-- end -->', "no lines are"),
        ("<!-- from results/reference/x.txt: all -->\n<!-- end -->", "'all' is neither"),
        ('<!-- from results/reference/x.txt: "name" to "goal" -->\ntext', "has no <!-- end -->"),
        ("<!-- =gone -->1<!-- end -->", "docs/figures.ini has no figure 'gone'"),
        ("<!-- =gone -->1", "has no <!-- end -->"),
    ],
)
def test_a_marker_that_names_nothing(marker: str, says: str, root: Path) -> None:
    check_refused(root, marker, says)


@pytest.mark.parametrize(
    ("source", "key", "says"),
    [
        ("x.txt", "^goal: (.*)", "2 lines match"),
        ("x.txt", "^goal: .*met", "and a group"),
        ("x.txt", "^goal: (", "unterminated subpattern"),
        ("x.json", "rows/1/ratio", "'1' of 'rows/1/ratio' is not there"),
        ("x.json", "rows/0/ratio .2q", "Unknown format"),
    ],
)
def test_a_name_of_nothing(source: str, key: str, says: str, root: Path) -> None:
    check_refused(root, f"{name_figure(root, source, key)}1<!-- end -->", says)


def check_refused(root: Path, marker: str, says: str) -> None:
    path = root / "README.md"
    path.write_text(f"line\n{marker}\n")
    done = figures(root, "--check")
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{path}:2: ") and says in line
