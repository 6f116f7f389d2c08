"""Versions of installed packages, and the revision of hpcbench."""

import importlib.metadata
import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def packages() -> dict[str, str]:
    """Return the versions of all installed packages."""
    versions = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return dict(sorted((name, version) for name, version in versions.items() if name))


def revision(place: Path) -> str | None:
    """Return the revision of the checkout that contains `place`, or None outside a checkout."""
    commit = git(place, "rev-parse", "HEAD")
    return commit.strip() if commit is not None else None


def package_revision(package: Path = _PACKAGE) -> str | None:
    """Return the revision of hpcbench, with ``-dirty`` for uncommitted changes, or None if unknown.

    The revision of a checkout is its current revision. The revision of an installed package is the revision from which
    the package was built, even if it is located inside another checkout.

    Parameters
    ----------
    package
        Package directory.
    """
    if is_checkout(package):
        answer = git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        return answer.strip() if answer else None
    try:
        return (package / "_data" / "revision.txt").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def is_checkout(package: Path = _PACKAGE) -> bool:
    """Return whether git tracks the package. An installed package may be located inside an unrelated checkout."""
    return git(package, "ls-files", "--error-unmatch", "__init__.py") is not None


def git(place: Path, *command: str) -> str | None:
    """Return the output of a git command in a directory. Return None if git fails, hangs, or is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *command], capture_output=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None
