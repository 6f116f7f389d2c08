"""Provenance of stored results (command, revision and machine), and detection of errors in the provenance."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("command", "revision", "machine")
BESIDE = "provenance.txt"
"""File for results without their own provenance.

The file contains blocks of ``# files: NAME ...`` and the three provenance lines.
"""

Known = Callable[[str], bool]


def provenance(path: Path) -> dict[str, str]:
    """Read the provenance of a file from the file itself, or from a file in the same directory that names it.

    Missing keys are omitted.
    """
    current = document(path) if path.suffix == ".json" else head(lines(path)) if path.suffix == ".txt" else {}
    if current or not (beside := path.with_name(BESIDE)).exists():
        return current
    blocks = re.split(r"^(?=# files: )", beside.read_text(encoding="utf-8"), flags=re.MULTILINE)
    result = (head(block.splitlines()) for block in blocks)
    return next(
        (each for each in result if any(fnmatch(path.name, name) for name in each.get("files", "").split())), {}
    )


def lines(path: Path) -> list[str]:
    """Split a text into lines."""
    return path.read_text(encoding="utf-8").splitlines()


def head(text: list[str]) -> dict[str, str]:
    """Return keys and values of the comment lines at the top of a text."""
    result: dict[str, str] = {}
    for line in text:
        if not line.startswith("#"):
            break
        if match := re.fullmatch(r"# (\w+): (.+)", line):
            result[match[1]] = match[2]
    return result


def document(path: Path) -> dict[str, str]:
    """Return keys and values of a JSON document's provenance."""
    read = json.loads(path.read_text(encoding="utf-8"))
    about = read.get("provenance", {}) if isinstance(read, dict) else {}
    return about if all(isinstance(value, str) for value in about.values()) else {}


def faults(path: Path, reference: Known) -> Iterator[str]:
    """List the errors in the provenance of a stored result.

    Parameters
    ----------
    path
        Path of the file.
    known
        Function that returns whether a revision exists.
    """
    output = provenance(path)
    if missing := [key for key in KEYS if key not in output]:
        yield f"says nothing of its {' and '.join(missing)}"
        return
    yield from command_faults(output["command"])
    revision = output["revision"]
    match = re.fullmatch(r"([0-9a-f]{7,40}) of \d{4}-\d\d-\d\d", revision)
    if match is None:
        yield f"revision {revision!r} is not one that was committed"
    elif not reference(match[1]):
        yield f"its revision {match[1]} is not in the history"


def command_faults(command: str) -> Iterator[str]:
    """List the errors in commands such as ``python benchmarks/x.py`` or ``make x``, separated by ``;``."""
    for part in command.split(";"):
        phrase = shlex.split(part)
        if phrase[0] == "python" and len(phrase) > 1 and phrase[1].startswith("benchmarks/"):
            if not (ROOT / phrase[1]).is_file():
                yield f"{phrase[1]} does not exist"
        elif phrase[0] == "make":
            if not re.search(rf"^{re.escape(phrase[1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
                yield f"the Makefile has no {phrase[1]}"
        elif phrase[0] != "hpcbench":
            yield f"{part.strip()!r} is not a command of this repository"


def git_knows() -> Known:
    """Return whether git contains the revision. Without a git history, every revision is accepted."""

    def git(*command: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")  # a copy may be inside the checkout of another project
    if top is None or not ROOT.samefile(top) or git("rev-parse", "--is-shallow-repository") != "false":
        return lambda revision: True
    return lambda revision: git("cat-file", "-e", f"{revision}^{{commit}}") is not None
