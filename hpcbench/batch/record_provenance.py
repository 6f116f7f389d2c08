"""Provenance of a submission: user, command, code revisions and environment."""

import getpass
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.batch.files import now, write_json
from hpcbench.secret_variables import may_be_secret
from hpcbench.versions import git, is_checkout, package_revision, packages, revision


def keep(root: Path, study: Path) -> None:
    """Write ``provenance/`` into a submission, unless it exists. Facts that cannot be determined are omitted.

    Only the user can read the directory, because no filter finds every secret in an environment or a diff.
    """
    directory = root / "provenance"
    if (directory / "submit.json").exists():
        return
    directory.mkdir(mode=0o700, exist_ok=True)
    revisions = {"hpcbench": _package(directory), "study": _checkout(study.resolve().parent, directory, "study")}
    write_json(
        directory / "submit.json",
        {
            "time": now(),
            "user": _user(),
            "host": socket.gethostname(),
            "directory": str(Path.cwd()),
            "command": sys.argv,
            "version": hpcbench.__version__,
            "python": platform.python_version(),
            "packages": packages(),
            "git": {name: state for name, state in revisions.items() if state},
            "environment": {
                name: value for name, value in sorted(os.environ.items()) if not may_be_secret(name, value)
            },
        },
    )


def _package(directory: Path) -> dict[str, Any] | None:
    """Return the revision of hpcbench.

    For an installed package, return the revision from which it was built, without a diff.
    """
    if is_checkout():
        return _checkout(Path(hpcbench.__file__).resolve().parent, directory, "hpcbench")
    built = package_revision()
    return {"revision": built.removesuffix("-dirty"), "dirty": built.endswith("-dirty")} if built else None


def _checkout(place: Path, directory: Path, name: str) -> dict[str, Any] | None:
    """Return the revision of the checkout that contains a directory. Write uncommitted changes to ``NAME.diff``."""
    head = revision(place)
    if head is None:
        return None
    diff = git(place, "diff", "--no-color", "--no-ext-diff", "HEAD") or ""
    if diff:
        (directory / f"{name}.diff").write_text(diff, encoding="utf-8")
    return {"revision": head, "dirty": bool(diff)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
