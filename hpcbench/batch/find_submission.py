"""Which submission a path means."""

import contextlib
import os
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.files import exists, shown_path


def find_root(path: Path | None) -> Path:
    """The submission's directory.

    Parameters
    ----------
    path
        It, or a directory of numbered ones, of which the newest counts; None for the newest below ``results``.

    Raises
    ------
    UserError
        There is no submission there.
    """
    if path is None:
        found = [root for study in _directories(Path("results")) for root in _numbered(study)]
        found += [root for base in elsewhere() for root in _numbered(base)]
        if not found:
            raise UserError("results: no submission here: give its directory, or start with `hpcbench submit`")
        return max(_own_first(found), key=lambda root: (root / "submission.json").stat().st_mtime_ns)
    name = shown_path(path)
    if not exists(path):
        raise UserError(f"{name}: no such directory: check the path")
    if not path.is_dir():
        raise UserError(f"{name}: is no directory: give the one that `hpcbench submit` made")
    if (path / "submission.json").is_file():
        return path
    found = _numbered(path)
    if not found:
        raise UserError(f"{name}: no submission.json in it: give the directory that `hpcbench submit` made")
    return max(_own_first(found), key=lambda root: int(root.name))


def is_own(root: Path) -> bool:
    """Whether a submission was written by this user: several may share a directory of results."""
    return (root / "submission.json").stat().st_uid == os.getuid()


def _own_first(roots: list[Path]) -> list[Path]:
    """The user's own submissions; those of others where there is none, which one may look at."""
    return [root for root in roots if is_own(root)] or roots


ELSEWHERE = Path("results") / "elsewhere.txt"
"""Directories of submissions that were given by --out, one a line, so that they are found from here."""


def elsewhere() -> list[Path]:
    """The directories that submissions from here were written to by --out."""
    try:
        return [Path(line) for line in ELSEWHERE.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, ValueError):
        return []


def remember(base: Path) -> None:
    """Keep a directory of submissions in mind that does not lie below ``results``."""
    base = base.absolute()
    if not str(base).isprintable() or base in elsewhere() or Path("results").absolute() in base.parents:
        return
    with contextlib.suppress(OSError):  # who may not write here names the directory instead
        ELSEWHERE.parent.mkdir(exist_ok=True)
        with ELSEWHERE.open("a", encoding="utf-8") as out:
            out.write(f"{base}\n")


def _directories(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []


def _numbered(path: Path) -> list[Path]:
    return [d for d in _directories(path) if d.name.isdecimal() and (d / "submission.json").is_file()]
