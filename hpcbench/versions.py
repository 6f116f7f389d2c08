"""Versions of what is installed here, and the revision of hpcbench. What cannot be found out is left out."""

import importlib.metadata
import subprocess
from pathlib import Path


def packages() -> dict[str, str]:
    """Versions of all packages that are installed here beside hpcbench."""
    found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return dict(sorted((name, version) for name, version in found.items() if name))


def revision(place: Path) -> str | None:
    """Revision of the checkout that the place lies in; None if it lies in none."""
    said = git(place, "rev-parse", "HEAD")
    return said.strip() if said is not None else None


def git(place: Path, *command: str) -> str | None:
    """The answer of git about a directory; None if git refuses, hangs or is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *command], capture_output=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None
