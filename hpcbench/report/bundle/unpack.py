"""Reads bundles: unpacked for as long as the program runs, checked against their digests, and asked of no scheduler."""

import atexit
import hashlib
import shutil
import tempfile
from pathlib import Path

from hpcbench.batch.tracking.track import track
from hpcbench.collect.submission import Submission, load
from hpcbench.contract.submission import FILE
from hpcbench.contract.text import printable
from hpcbench.contract.values import member, text
from hpcbench.errors import UserError
from hpcbench.files import read_json
from hpcbench.report.bundle import archive


def submissions(path: Path) -> list[Submission]:
    """The submissions of a bundle.

    Raises
    ------
    UserError
        It is none, or its files are not those that were packed.
    """
    place = Path(tempfile.mkdtemp(prefix="hpcbench-bundle-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    archive.unpack(path, place)
    roots = sorted(one.parent for one in place.glob(f"*/{FILE}"))
    where = printable(str(path))
    if not roots:
        raise UserError(f"{where}: holds no submission: give what `hpcbench report --bundle` wrote")
    for root in roots:
        _check(root, where)
    return [load_quietly(root) for root in roots]


def load_quietly(root: Path) -> Submission:
    """A submission as its files tell of it: its jobs' ids mean nothing to a scheduler elsewhere."""
    tracked = track(root, ask=False)
    return load(root, {job: status.job(job) for job, status in tracked.jobs.items()})


def _check(root: Path, where: str) -> None:
    listed = member(read_json(root / archive.MANIFEST), "files")
    if not isinstance(listed, dict):
        raise UserError(f"{where}: {root.name}: has no {archive.MANIFEST}: give what `hpcbench report --bundle` wrote")
    there = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()} - {archive.MANIFEST}
    for name in sorted(there ^ set(listed)):
        what = "is missing" if name in listed else "was added"
        raise UserError(f"{where}: {root.name}/{printable(name)}: {what}: not what was packed")
    for name in sorted(there):
        if hashlib.sha256((root / name).read_bytes()).hexdigest() != text(listed, name, "sha256"):
            raise UserError(f"{where}: {root.name}/{printable(name)}: was changed since it was packed")
