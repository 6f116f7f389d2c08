"""Cache for files that are expensive to create, such as compiled code, keyed by a digest of their sources."""

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

KEPT = Path(__file__).parents[1] / "build" / "tests"


@cache
def digest(*places: Path) -> str:
    """Return a digest of the names and contents of files, including all files in folders."""
    content_hash = hashlib.sha256()
    for place in places:
        files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        for file in files:
            content = file.read_bytes()
            content_hash.update(f"{file.relative_to(place.parent)} {len(content)}\n".encode() + content)
    return content_hash.hexdigest()


def cache_file(key: Iterable[object], suffix: str, make: Callable[[Path], None]) -> Path:
    """Return the cached file for a key. The key must cover everything that the file depends on.

    Parameters
    ----------
    make
        Function that writes the file if it does not exist. Several processes may call the function concurrently. No
        process sees a partially written file.
    """
    name = hashlib.sha256(repr(list(key)).encode()).hexdigest()[:32]
    target = KEPT / f"{name}{suffix}"
    if not target.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        partial = KEPT / f"{name}.{os.getpid()}{suffix}"
        try:
            make(partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    return target
