"""Record of sites on which two ranks have communicated.

If the launcher belongs to a different MPI library, each rank starts in a separate MPI world.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from hpcbench.batch.sites.site import Site
from hpcbench.files import read_json

_STARTS_RANKS = ("launcher", "modules", "setup", "environment", "python", "container")
"""Site fields that affect whether ranks can communicate."""


def remember_met(site: Site) -> None:
    """Record that two ranks communicated after they were started with the site's settings."""
    with contextlib.suppress(OSError):  # If the home directory is full, the note appears again.
        _path().parent.mkdir(parents=True, exist_ok=True)
        with _path().open("a", encoding="utf-8") as out:
            out.write(f"{_digest(site)}\n")


def have_met(site: Site, results: Path) -> bool:
    """Return whether two ranks have communicated on a site, in `doctor --run` or in a completed run.

    Parameters
    ----------
    results
        Directory that contains the study directories.
    """
    try:
        if _digest(site) in _path().read_text(encoding="utf-8").split():
            return True
    except (OSError, ValueError):
        pass
    for path in results.glob("*/[0-9]*/site.json"):
        then = read_json(path) or {}
        if all(then.get(name) == value for name, value in _starting(site).items()):
            marks = path.parent.glob("runs/*/status.json")
            if any((mark := read_json(each)) is not None and mark.get("exit") == 0 for each in marks):
                return True
    return False


def _starting(site: Site) -> dict[str, object]:
    return site.model_dump(mode="json", include=set(_STARTS_RANKS))


def _digest(site: Site) -> str:
    return hashlib.sha256(json.dumps([site.site, _starting(site)], sort_keys=True).encode()).hexdigest()


def _path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "hpcbench" / "met-ranks.txt"
