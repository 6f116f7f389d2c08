"""Tests of hostile names and texts. Each format shows such names as text and keeps its structure."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from planted_results import Planted, write

from hpcbench.collect import submission
from hpcbench.console import UNBOUND
from hpcbench.present import latex, markdown, rich_text
from hpcbench.present.document import Chapter, Column, Document, Entry, Sentences, Table
from hpcbench.report.build import resolve_tables
from hpcbench.report.compare import compare
from hpcbench.report.formats import ReportRequest
from hpcbench.report.main import report
from hpcbench.report.measures import measure

EVIL = {
    "terminal": "\x1b]0;title\x07\x1b[2J\x9b31m\x85\u2028\u202e",
    "rich": "[red]x[/red] [link=file:///etc/passwd]y[/link]",
    "markdown": "**a** `b` [c](http://x) <script>alert(1)</script> |d| ~~e~~ $f$ &lt;",
    "list": "# heading",
    "latex": '\\end{document} \\input{/etc/passwd} $a^b_c$ 100 % # & ~ {} [1cm] --- `` "',
    "formula": '=HYPERLINK("http://x")',
    "at": "@SUM(1+1)",
    "json": '", "schema": 99, "x": "\\u0000',
    "surrogate": "a\ud800b",
    "wide": "日本語 ± Ω 😀 é",
    "long": "z" * 100_000,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Each hostile name is used for study, site, scheme, cell, model, and the reason of a failure."""
    runs = [Planted("baseline", repeat, 0.2, 2.7) for repeat in range(1, len(EVIL) + 1)]
    write(tmp_path / "001", runs)
    plan = json.loads((tmp_path / "001/submission.json").read_text())
    # A plan with an unpaired surrogate is not read at all.
    names = [evil.replace("\ud800", "") for evil in EVIL.values()]
    plan["study"] = plan["site"] = " ".join(name[:50] for name in names)
    for run, evil, name in zip(plan["runs"], EVIL.values(), names, strict=True):
        log = tmp_path / "001" / run["path"] / "log.txt"
        run["scheme"], run["cell"] = name, {"nodes": name, name[:9]: 1}
        end = json.dumps({"event": "end", "state": "failed", "reason": evil}) + "\n"
        lines = log.read_text().replace('"gpt-tiny"', json.dumps(evil)).splitlines(keepends=True)
        log.write_text("".join([*lines[:-1], end]))
    (tmp_path / "001/submission.json").write_text(json.dumps(plan))
    return tmp_path / "001"


def write_report(root: Path, format: str) -> str:
    """Build the report of a plan that `hpcbench submit` would refuse. Only single logs may contain such names."""
    loaded = submission.load(root, {})
    for run, evil in zip(loaded.runs, EVIL.values(), strict=True):
        run.id = evil.replace("\ud800", "")
    cells = compare([measure(run) for run in loaded.runs], "baseline", loaded.plan.criteria)
    out = ReportRequest([(loaded, cells)], resolve_tables("all"), None).write(format)
    assert out.encode()  # no unpaired surrogate
    assert all(letter.isprintable() or letter == "\n" for letter in out)
    return out


def test_the_terminal_shows_markup(root: Path) -> None:
    out = write_report(root, "table")
    assert "[red]x[/red]" in out and "[link=file" in out
    assert max(map(len, out.splitlines())) <= UNBOUND


UNESCAPED = re.compile(r"(?<!\\)(?:\\\\)*[`*_<>\[\]&~$|]")


def test_markdown_keeps_its_structure(root: Path) -> None:
    lines = write_report(root, "md").splitlines()
    for line in lines:
        if line.startswith("|"):
            line = line.replace(" | ", " ").removeprefix("| ").removesuffix(" |")
        elif line.startswith("**"):
            line = line.removeprefix("**").removesuffix("**")
        assert line == "" or set(line) <= set("-: ") or not UNESCAPED.search(line)
    assert not [line for line in lines if re.match(r"(- )?(#|- )", line.removeprefix("- "))]
    tables = "\n".join(lines).split("\n\n")
    for table in (block.splitlines() for block in tables if block.startswith("|")):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1


COMMANDS = re.compile(
    r"\\(?:text(?:backslash|asciitilde|asciicircum|less|greater|bar)|`)\{\}|\\[{}$&#%_]|-\{\}|/\\allowbreak\{\}|\{[*\[\]]\}|\$-\$"
)
OURS = re.compile(
    r"\\(?:begin|end)\{(?:table|tabular|itemize)\}(?:\[htbp\])?|\\(?:item|centering|footnotesize|toprule|midrule|bottomrule"
    r"|par|medskip|raggedright)\b|\\(?:caption|label)\{|\{@\{\}(?:[lr]|p\{0\.3\\linewidth\})+@\{\}\}| \\\\$"
)


def test_latex_has_no_commands_but_ours(root: Path) -> None:
    lines = write_report(root, "latex").splitlines()
    assert lines[0] == "% Needs \\usepackage{booktabs}."
    for line in lines[1:]:
        remainder = OURS.sub("", COMMANDS.sub("", line))
        if line.startswith(("\\caption{", "\\label{")):
            remainder = remainder.removesuffix("}")
        if line.endswith(" \\\\"):
            remainder = remainder.replace(" & ", "  ")
        assert not re.search(r"[\\{}$&#%_^~]", remainder), line
    for what in ("table", "tabular", "itemize"):
        assert (
            sum(f"\\begin{{{what}}}" in line for line in lines) == sum(f"\\end{{{what}}}" in line for line in lines) > 0
        )


def test_spreadsheets_compute_nothing(root: Path) -> None:
    rows = list(csv.reader(io.StringIO(write_report(root, "csv"))))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 1 + len(EVIL)
    for field in (field for row in rows for field in row if field.startswith(("=", "+", "-", "@"))):
        float(field)
    assert any(field.startswith("'=HYPERLINK") for row in rows for field in row)


def test_json_is_strict_and_plain(root: Path) -> None:
    out = write_report(root, "json")
    assert out.isascii()
    document = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert document["schema"] == 5
    assert [cell["runs"][0]["reason"] for cell in document["submissions"][0]["cells"]][1].startswith("[red]x")


def test_json_of_what_a_log_nests_deep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.2, 2.7)])
    log = root / "runs/r1-baseline/log.txt"
    log.write_text(log.read_text().replace('"MPICH 5.0.2"', "[" * 400 + "]" * 400))
    report([root], "json")
    nested = json.loads(capsys.readouterr().out)["submissions"][0]["cells"][0]["runs"][0]["environment"]["mpi"]
    depth = 0
    while nested:
        nested, depth = nested[0], depth + 1
    assert 10 < depth < 100 and nested is None


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_a_document_of_nothing_else(evil: str) -> None:
    """Titles, headers and notes are escaped like entries."""
    table = Table("t", evil, (Column("a", evil, text=True), Column("b", evil)), ((Entry(evil), Entry(evil)),), (evil,))
    document = Document(evil, (Chapter(evil, evil, (table, Sentences((evil,), "bad"))),))
    for text in (rich_text.write(document), markdown.write(document), latex.write(document)):
        assert text.encode()
        assert all(letter.isprintable() or letter == "\n" for letter in text)
    text = latex.write(document)
    assert "\\end{document}" not in text and "\\input" not in text
    assert "<script>" not in markdown.write(document).replace("\\<", "").replace("\\>", "")
