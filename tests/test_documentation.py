"""Tests of the documentation: links, generated pages, the build of the site, and the length of the first page."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "results" / "README.md"])
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`|<!--.*?-->", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|py)\b")
NO_SUBJECT = re.compile(r"(Of|This)\b")
SPEAK_OF_DOCS = ("hpcbench", "benchmarks", "studies", "templates", "kernels", "docs")


def links(text: str) -> Iterator[str]:
    """Yield the link targets of a page, excluding those in code."""
    yield from LINK.findall(CODE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> list[str]:
    """Return the links within the repository whose targets do not exist."""
    broken_links = []
    for target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        to = page.parent / name if name else page
        inside = text if to == page else to.read_text(encoding="utf-8") if to.is_file() and anchor else ""
        if not to.exists() or (anchor and anchor not in anchors(inside)):
            broken_links.append(target)
    return broken_links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    text = "# A b-c: `d`\n[1](#a-b-c-d) [2](#a-b) [3](gone.md) [4](there.md#x) [5](there.md#y) `[6](no)` [7](https://x.y)\n"
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "there.md").write_text("# X\n```\n# Y\n```\n")
    assert broken(page, text) == ["#a-b", "gone.md", "there.md#y"]


def test_pages_that_code_and_comments_name_are_there() -> None:
    named: dict[str, Path] = {}
    for name in SPEAK_OF_DOCS:
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".h", ".cpp", ".j2", ".sh", ".txt"):
                named |= dict.fromkeys(NAMED.findall(path.read_text(encoding="utf-8")), path)
    assert len(named) > 5
    assert {name: str(path) for name, path in named.items() if not (ROOT / name).is_file()} == {}


def test_decisions_stay_short() -> None:
    """The page is for decisions that concern several packages.

    Other decisions belong to the line of code that they explain.
    """
    assert len((ROOT / "docs" / "decisions.md").read_bytes()) <= 25_000


def test_files_that_the_architecture_page_names_are_there() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`((?:hpcbench|kernels|templates|tests|docs)/[\w./-]+)`", page)) - {"kernels/hb_NAME.h"}
    assert len(files) > 40
    assert {name for name in files if not (ROOT / name).exists()} == set()


def test_the_reference_is_what_the_code_declares() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_reference_has_every_command_and_field() -> None:
    from hpcbench.batch.sites.site import Site
    from hpcbench.study.schema import Study

    commands = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for command in ("submit", "report", "doctor", "bench codecs"):
        assert f"\n## hpcbench {command}\n" in commands
    assert "`--dry-run`" in commands and "`-h" not in commands
    for name, section in (("study", Study), ("site", Site)):
        page = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
        assert [field for field in section.model_fields if f"\n| `{field}` | " not in page] == []


def test_every_page_is_in_the_sites_list_and_the_site_builds(tmp_path: Path) -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {str(path.relative_to(ROOT / "docs")) for path in PAGES if (ROOT / "docs") in path.parents}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "explanation" / "slow-links.html").read_text(encoding="utf-8")
    (drawn,) = re.findall(r'src="([^"]+throttled-training-curve\.svg)"', page)
    assert (tmp_path / "site" / "explanation" / drawn).is_file()
    loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"', page)
    assert len(loaded) > 5 and not [each for each in loaded if each.startswith(("http", "//"))], "works offline"
    assert "PowerSGD" in (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8")


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def without_subject(source: str) -> list[int]:
    """Return the line numbers of docstrings, and of entries within docstrings, that do not begin with a subject."""
    line_numbers = []
    for node in ast.walk(ast.parse(source)):
        if not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            continue
        lines = [line.strip() for line in node.value.value.splitlines()]
        # the first line, and the first line of each entry below a heading such as Parameters
        indented = [len(line) - len(line.lstrip()) for line in node.value.value.splitlines()]
        entries = [k for k in range(1, len(lines)) if lines[k] and lines[k - 1] and indented[k] > indented[k - 1]]
        line_numbers += [node.lineno + k for k in (0, *entries) if NO_SUBJECT.match(lines[k])]
    return line_numbers


def test_every_docstring_begins_with_its_subject() -> None:
    places = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "hpcbench").rglob("*.py"))
        for line in without_subject(path.read_text(encoding="utf-8"))
    }
    assert places == set()


@pytest.mark.parametrize(
    ("planted", "lines"),
    [
        ('VERSION = 1\n"""Of hpcbench."""\n', [2]),
        ('def f(n):\n    """This cuts."""\n', [2]),
        ('def f(n):\n    """Cut.\n\n    Parameters\n    ----------\n    n\n        Of the run.\n    """\n', [7]),
        ('def f(n):\n    """Office of a mesh.\n\n    Of two ranks the first one cuts.\n    """\n', []),
    ],
)
def test_a_docstring_without_a_subject_is_found(planted: str, lines: list[int]) -> None:
    assert without_subject(planted) == lines
