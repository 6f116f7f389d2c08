"""The command, revision and machine of stored results, and the faults in them."""

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
"""For files without a head of their own: blocks of ``# files: NAME ...`` and the three lines."""

Known = Callable[[str], bool]


def provenance(path: Path) -> dict[str, str]:
    """What the file, or the one beside it that names it, says; what is not said is not there."""
    own = document(path) if path.suffix == ".json" else head(lines(path)) if path.suffix == ".txt" else {}
    if own or not (beside := path.with_name(BESIDE)).exists():
        return own
    blocks = re.split(r"^(?=# files: )", beside.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = (head(block.splitlines()) for block in blocks)
    return next((each for each in found if any(fnmatch(path.name, name) for name in each.get("files", "").split())), {})


def lines(path: Path) -> list[str]:
    """The lines of a text."""
    return path.read_text(encoding="utf-8").splitlines()


def head(text: list[str]) -> dict[str, str]:
    """Keys and values of the lines with a hash that a text begins with."""
    found: dict[str, str] = {}
    for line in text:
        if not line.startswith("#"):
            break
        if match := re.fullmatch(r"# (\w+): (.+)", line):
            found[match[1]] = match[2]
    return found


def document(path: Path) -> dict[str, str]:
    """The same of a JSON document."""
    read = json.loads(path.read_text(encoding="utf-8"))
    about = read.get("provenance", {}) if isinstance(read, dict) else {}
    return about if all(isinstance(value, str) for value in about.values()) else {}


def faults(path: Path, known: Known) -> Iterator[str]:
    """The faults of a stored result.

    Parameters
    ----------
    path
        Path of the file.
    known
        Whether git knows a revision.
    """
    said = provenance(path)
    if missing := [key for key in KEYS if key not in said]:
        yield f"says nothing of its {' and '.join(missing)}"
        return
    yield from command_faults(said["command"])
    revision = said["revision"]
    match = re.fullmatch(r"([0-9a-f]{7,40}) of \d{4}-\d\d-\d\d", revision)
    if match is None:
        yield f"revision {revision!r} is not one that was committed"
    elif not known(match[1]):
        yield f"git does not know its revision {match[1]}"


def command_faults(command: str) -> Iterator[str]:
    """What is wrong with ``python benchmarks/x.py ...``, ``make x`` or ``hpcbench ...``, or several with ``;``."""
    for part in command.split(";"):
        words = shlex.split(part)
        if words[0] == "python" and len(words) > 1 and words[1].startswith("benchmarks/"):
            if not (ROOT / words[1]).is_file():
                yield f"{words[1]} does not exist"
        elif words[0] == "make":
            if not re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
                yield f"the Makefile has no {words[1]}"
        elif words[0] != "hpcbench":
            yield f"{part.strip()!r} is no command of this repository"


def git_knows() -> Known:
    """Asks git; where there is no history to ask, any revision will do."""

    def git(*command: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")  # a copy may lie in a checkout of something else
    if top is None or not ROOT.samefile(top) or git("rev-parse", "--is-shallow-repository") != "false":
        return lambda revision: True
    return lambda revision: git("cat-file", "-e", f"{revision}^{{commit}}") is not None
