"""Tests that failed tests are repeated alone. A test that then passes is reported. A second failure fails the run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long  # each case is a run of pytest

TESTS = Path(__file__).parents[1]
UNSTEADY = """
import pathlib

def test_unsteady():
    before = pathlib.Path("before")
    if not before.exists():
        before.touch()
        assert False, "its first words"
"""
FAILING = "def test_failing(): assert False, 'always'\n"


def run(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "unsteady", "-p", "no:cacheprovider", *arguments]
    environment = {"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


PARALLEL = ("-n2", "--dist", "loadgroup", "--once-more", "3")


def test_a_test_that_passes_alone_is_reported_with_its_message(tmp_path: Path) -> None:
    done = run(tmp_path, *PARALLEL, passing="def test(): pass", unsteady=UNSTEADY)
    assert done.returncode == 0, done.stdout
    report = done.stdout[done.stdout.index("UNSTEADY: failed in parallel, passed alone") :]
    assert "UNSTEADY test_unsteady.py::test_unsteady" in report and "its first words" in report


def test_a_test_that_is_deselected_by_default_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -m 'not long'\nmarkers = long\n")
    marked = "import pytest\npytestmark = pytest.mark.long\n"
    done = run(tmp_path, *PARALLEL, "-m", "long", unsteady=marked + UNSTEADY)
    assert done.returncode == 0 and "UNSTEADY test_unsteady.py::test_unsteady" in done.stdout, done.stdout


@pytest.mark.parametrize("options", [(), PARALLEL[:-2]], ids=["one after another", "in parallel"])
def test_without_the_option_no_test_is_run_again(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert run(tmp_path, *options, unsteady=UNSTEADY).returncode == 1


def test_a_test_that_fails_alone_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, *PARALLEL, unsteady=UNSTEADY, failing=FAILING)
    assert done.returncode == 1
    assert "failed in parallel, and failed alone" in done.stdout and "UNSTEADY" not in done.stdout


def test_too_many_failures_fail_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, *PARALLEL, **{f"f{k}": FAILING for k in range(4)})
    assert done.returncode == 1 and "alone" not in done.stdout


def test_a_test_of_a_group_is_found_again_by_its_name(tmp_path: Path) -> None:
    grouped = "import pytest\n@pytest.mark.xdist_group('a/b.py')\n@pytest.mark.parametrize('x', ['a@b [c]'])\n"
    done = run(
        tmp_path,
        *PARALLEL,
        unsteady=grouped
        + UNSTEADY.strip()
        .replace("import pathlib\n\n", "")
        .replace("def test_unsteady()", "def test_unsteady(x)")
        .replace("pathlib", "__import__('pathlib')"),
    )
    assert done.returncode == 0, done.stdout
    assert "UNSTEADY test_unsteady.py::test_unsteady[a@b [c]]" in done.stdout
