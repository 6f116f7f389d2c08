"""Tests that every stored result contains the command, the revision and the machine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_results import BESIDE, ROOT, Known, faults, git_knows
from tools import explain_missing

REFERENCE = ROOT / "results" / "reference"
GOOD = {"command": "python benchmarks/links.py", "revision": "0123456789ab of 2026-11-22", "machine": "2 cores"}


@pytest.fixture(scope="module")
def knows(need: Callable[[str | None], None]) -> Known:
    if (ROOT / ".git").exists():
        need(explain_missing("git"))
    return git_knows()


def stored() -> list[str]:
    """List all files except those that describe other files."""
    files = (path for path in REFERENCE.rglob("*") if path.is_file() and path.name != BESIDE)
    return sorted(path.relative_to(REFERENCE).as_posix() for path in files)


@pytest.mark.parametrize("name", stored())
def test_a_stored_result_says_where_it_comes_from(name: str, knows: Known) -> None:
    assert not list(faults(REFERENCE / name, knows)), name


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"command": "make demo; hpcbench report results/demo"}, None),
        ({"machine": None}, "says nothing of its machine"),
        ({"command": None, "revision": None}, "says nothing of its command and revision"),
        ({"command": "python benchmarks/gone.py --tiny"}, "benchmarks/gone.py does not exist"),
        ({"command": "make nothing"}, "the Makefile has no nothing"),
        ({"command": "magic"}, "'magic' is not a command of this repository"),
        ({"revision": "0123456789ab-dirty of 2026-11-22"}, "is not one that was committed"),
        ({"revision": "unknown: not a git checkout"}, "is not one that was committed"),
        ({"revision": "ffff567 of 2026-11-22"}, "its revision ffff567 is not in the history"),
        ({"revision": "not recorded; committed in 0123456789ab"}, "is not one that was committed"),
    ],
)
@pytest.mark.parametrize("form", ["x.txt", "x.json", "beside"])
def test_what_is_wrong_is_found(form: str, change: dict[str, str | None], fault: str | None, tmp_path: Path) -> None:
    output = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    path = tmp_path / ("x.svg" if form == "beside" else form)
    head = "".join(f"# {key}: {value}\n" for key, value in output.items())
    if form == "beside":
        path.write_text("<svg/>")
        (tmp_path / BESIDE).write_text(f"# files: other.*\n\n# files: y.svg x.*\n{head}")
    else:
        path.write_text(json.dumps({"provenance": output}) if form == "x.json" else f"{head}a table\n")
    result = list(faults(path, lambda revision: revision == "0123456789ab"))
    assert (len(result) == 1 and fault in result[0]) if fault else not result
