"""Tests of installation instructions in messages and pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("hpcbench", "docs", "studies", "sites", "templates", "benchmarks", "README.md", "Makefile")
ARGUMENT = r"\s+['\"]?[\w./<>=~-]+(?:\[[\w,]*\])?['\"]?"
FROM_AN_INDEX = re.compile(rf"pip install(?:{ARGUMENT})*?\s+['\"]?hpcbench(?:\[[\w,]*\])?(?=['\"\s`,;:]|$)")
"""Pattern of `pip install hpcbench`, because package indexes contain a different project of this name."""


def texts() -> list[Path]:
    """Return all files that contain text for users."""
    roots = [ROOT / place for place in PLACES]
    files = [file for root in roots for file in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return [file for file in files if file.is_file() and file.suffix not in (".pyc", ".so", ".png", ".npz")]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("pip install 'hpcbench[report]'", True),
        ("pip install hpcbench", True),
        ("`pip install -U hpcbench[train]`", True),
        ("python -m pip install --upgrade hpcbench,", True),
        ("pip install './hpcbench[cluster]'", False),
        ("pip install '.[train]', in a checkout of hpcbench", False),
        ("pip install matplotlib", False),
    ],
)
def test_the_expression_matches_only_installations_from_an_index(text: str, refused: bool) -> None:
    assert bool(FROM_AN_INDEX.search(text)) is refused


def test_no_text_names_the_package_of_another_project() -> None:
    assert len(texts()) > 500
    places = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in texts()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if FROM_AN_INDEX.search(line)
    ]
    assert not places, "\n".join(places)


@pytest.mark.parametrize(
    ("version", "status", "says"),
    [
        ((3, 9), 2, "hpcbench needs Python 3.10 or newer"),
        ((3, 10), 0, ""),
        ((3, 14), 0, ""),
        ((3, 15), 0, "tested with Python 3.10 to 3.14: continuing with a newer one"),
        ((4, 0), 0, "tested with Python 3.10 to 3.14: continuing with a newer one"),
    ],
)
def test_newer_pythons_are_warned_of_and_older_ones_refused(
    tmp_path: Path, version: tuple[int, int], status: int, says: str
) -> None:
    """The Makefile checks an interpreter that reports a fake version, without creating an environment."""
    python = tmp_path / "python"
    claim = f"import sys; sys.version_info = ({version[0]}, {version[1]}, 0)"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "{claim}; $2"\nexit 0\n')
    python.chmod(0o755)
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").split("$(VENV)/bin/python:", 1)[1].split("\n\n")[0]
    checks = [line for line in lines.replace("\\\n", "").splitlines() if "version_info" in line]
    (tmp_path / "Makefile").write_text(f"PYTHON = {python}\nall:\n" + "\n".join(checks) + "\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}  # may set PYTHON
    command = ["make", "-C", tmp_path, "-s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == status and says in done.stderr and bool(done.stderr) is bool(says), done.stderr
    assert len(checks) == 2
