"""Versions of what is installed here, and the revision of hpcbench. What cannot be found out is left out."""

import importlib.metadata
import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def packages() -> dict[str, str]:
    """Versions of all packages that are installed here beside hpcbench."""
    found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return dict(sorted((name, version) for name, version in found.items() if name))


def revision(place: Path) -> str | None:
    """Revision of the checkout that the place lies in; None if it lies in none."""
    said = git(place, "rev-parse", "HEAD")
    return said.strip() if said is not None else None


def package_revision(package: Path = _PACKAGE) -> str | None:
    """Return the revision of hpcbench, with ``-dirty`` if it had changes; None if it is not known.

    A checkout is asked for its revision of now. An installed package has the one that it was built from, even if it
    lies in a directory of somebody's checkout.

    Parameters
    ----------
    package
        Directory of the package.
    """
    if is_checkout(package):
        answer = git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        return answer.strip() if answer else None
    try:
        return (package / "_data" / "revision.txt").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def is_checkout(package: Path = _PACKAGE) -> bool:
    """Return whether git tracks the package, which may also be installed below a checkout of something else."""
    return git(package, "ls-files", "--error-unmatch", "__init__.py") is not None


def git(place: Path, *command: str) -> str | None:
    """The answer of git about a directory; None if git refuses, hangs or is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *command], capture_output=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None
