"""Tests that the commands of docs/tutorial/slurm.md work on a real Slurm and print the output shown on the page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from extras import SEEN, installed_by, run_page, write_guard
from planted_results import Planted, write
from slurm_on_one_machine import Cluster
from typed_pages import blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "slurm.md"


def report(root: Path, guard: Path) -> "subprocess.CompletedProcess[str]":
    """Run the page's last command on a report's directory."""
    command = [sys.executable, "-m", "hpcbench", "report", str(root), "--output", "first.html"]
    environment = {**os.environ, "PYTHONPATH": str(guard)}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_every_line_of_the_tutorial(cluster: Cluster, tmp_path: Path) -> None:
    commands, files = run_page(PAGE, tmp_path, {})
    assert (commands >= 10, files) == (True, 1)
    assert (tmp_path / "guard" / SEEN).exists(), "ranks had all packages of the tests"


def test_a_package_that_the_extra_lacks_stops_the_tutorial(tmp_path: Path) -> None:
    """The injected error is an extra that lacks matplotlib."""
    root = tmp_path / "001"
    write(root, [Planted(scheme, repeat, 0.4, loss=2.7) for scheme in ("baseline", "naive-zfp8") for repeat in (1, 2)])
    script = installed_by(PAGE)
    assert {"matplotlib", "torch", "mpi4py", "numpy", "rich"} <= script
    assert not {"pytest", "hypothesis", "pyarrow", "mypy"} & script
    done = report(root, write_guard(tmp_path / "all", script))
    assert done.returncode == 0, done.stderr
    done = report(root, write_guard(tmp_path / "less", script - {"matplotlib"}))
    assert done.returncode == 2 and "matplotlib" in done.stderr


def test_only_the_installation_is_not_run() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (installing,) = [content for language, content, _ in blocks(text) if language == "sh"]
    assert [line.split()[0] for line in installing.splitlines()] == ["git", "python3", "pip"]
    assert text.count("```") == 2 * len(list(blocks(text)))
