"""Lookup of submissions by path, and a record of the directories given with ``--out``."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hpcbench.contract.submission import FILE, SubmissionFile, find_original_place, read_submission
from hpcbench.errors import UserError
from hpcbench.files import exists, read_json, shown_path


def find_root(path: Path | None) -> Path:
    """Return the directory of a submission.

    Parameters
    ----------
    path
        Submission directory, or a directory whose newest numbered submission is used. None selects the newest
        submission below ``results``.

    Raises
    ------
    UserError
        The path contains no submission.
    """
    if path is None:
        roots = [root for study in _directories(Path("results")) for root in list_submissions(study)]
        roots += [root for base in elsewhere() for root in list_submissions(base)]
        if not roots:
            raise UserError(
                "results: no submission found here: give the directory of a submission, or start with `hpcbench submit`"
            )
        return max(_own_first(roots), key=lambda root: (root / FILE).stat().st_mtime_ns)
    name = shown_path(path)
    if not exists(path):
        raise UserError(f"{name}: no such directory: check the path")
    if not path.is_dir():
        raise UserError(f"{name}: is not a directory: give the directory that `hpcbench submit` made")
    if (path / FILE).is_file():
        return path
    roots = list_submissions(path)
    if not roots:
        raise UserError(f"{name}: contains no submission.json: give the directory that `hpcbench submit` made")
    return _own_first(roots)[-1]


def list_submissions(base: Path) -> list[Path]:
    """Return the numbered submission directories in `base`, oldest first."""
    roots = [path for path in _directories(base) if path.name.isdecimal() and (path / FILE).is_file()]
    return sorted(roots, key=lambda path: int(path.name))


def find_same(base: Path, digest: str) -> Iterator[tuple[Path, SubmissionFile]]:
    """Yield the submissions in `base` that have this digest and that the user can continue, newest first.

    Dry runs, damaged submissions, copies, and other users' submissions cannot be continued.
    """
    for root in reversed(list_submissions(base)):
        written = read_json(root / FILE) or {}
        if written.get("digest") == digest and not written.get("dry_run") and is_own(root):
            submission = read_submission(root)
            if find_original_place(root, submission) is None:
                yield root, submission


def is_own(root: Path) -> bool:
    """Return whether this user owns a submission. Several users may share a results directory."""
    return (root / FILE).stat().st_uid == os.getuid()


def _own_first(roots: list[Path]) -> list[Path]:
    """Return the user's own submissions, or all submissions if the user owns none."""
    return [root for root in roots if is_own(root)] or roots


ELSEWHERE = Path("results") / "elsewhere.txt"
"""File that lists the directories given with --out, one per line."""


def elsewhere() -> list[Path]:
    """Return the recorded --out directories of submissions made in the current directory."""
    try:
        return [Path(line) for line in ELSEWHERE.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, ValueError):
        return []


def remember(base: Path) -> None:
    """Record a directory of submissions, unless it is below ``results``."""
    base = base.absolute()
    if not str(base).isprintable() or base in elsewhere() or Path("results").absolute() in base.parents:
        return
    with contextlib.suppress(OSError):  # Without write permission here, the user must give the directory later.
        ELSEWHERE.parent.mkdir(exist_ok=True)
        with ELSEWHERE.open("a", encoding="utf-8") as out:
            out.write(f"{base}\n")


def _directories(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []
