"""Checks of the results directory (space, links, clock, quota) and of the hpcbench version."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import hpcbench
from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown
from hpcbench.versions import package_revision

LEAST_GB = 1.0
_SKEW = 5.0
"""Maximum harmless clock difference between this node and the file server, in seconds."""


def check_place(work: Path) -> list[Check]:
    """Check the directory that contains results/: space, links, clock, quota, and revision."""
    base = next(path for path in (work / "results", *(work / "results").absolute().parents) if path.is_dir())
    return [*_directory(base), _quota(), _revision()]


def _directory(base: Path) -> list[Check]:
    try:
        with tempfile.TemporaryDirectory(prefix=".hpcbench-", dir=base) as name:
            checks = [_room(base), _links(Path(name)), _clock(Path(name))]
    except OSError as error:
        fact = f"{base}: cannot be written: {error.strerror}"
        return [
            report_missing(
                "work directory", fact, "run hpcbench elsewhere, or set `work` in the site file", needed=True
            )
        ]
    return checks


def _room(base: Path) -> Check:
    free = shutil.disk_usage(base).free / 1e9
    fact = f"{base}: {free:.1f} GB free"
    if free < LEAST_GB:
        return report_missing("work directory", fact, "free disk space for logs and checkpoints", needed=True)
    return report_ok("work directory", fact, needed=True)


def _links(directory: Path) -> Check:
    """Check hard links. Claims and locks require that only one process across all nodes can create a given link."""
    first, lock = directory / "first", directory / "lock"
    first.touch()
    try:
        os.link(first, lock)
    except OSError as error:
        return report_missing(
            "links",
            f"hard links fail in this directory: {error.strerror}",
            "put results on another file system",
            needed=True,
        )
    try:
        os.link(first, lock)
    except FileExistsError:
        return report_ok("links", "a second link with the same name is refused, as locks require", needed=True)
    except OSError as error:
        return report_unknown(
            "links", f"a second link with the same name fails with another error: {error.strerror}", needed=True
        )
    return report_missing(
        "links",
        "a second link with the same name is accepted, so locks cannot work",
        "put results on another file system",
        needed=True,
    )


def _clock(directory: Path) -> Check:
    path = directory / "clock"
    before = time.time()
    path.touch()
    after = time.time()
    stamp = path.stat().st_mtime
    skew = max(before - stamp, stamp - after, 0.0)
    if skew > _SKEW:
        return report_missing(
            "clock",
            f"the clocks of this node and the file server differ by {skew:.0f} s",
            "report this to the administrator, because times in reports are wrong",
        )
    return report_ok("clock", "the clocks of this node and the file server agree")


def _quota() -> Check:
    answer = attempt(["quota", "-s", "-w"])
    if not answer.present:
        return report_unknown("quota", "the quota command is missing", "use the site's own command to see limits")
    if answer.status is None:
        return report_unknown("quota", answer.problem)
    over = [line.split()[0] for line in answer.out.splitlines() if any(word.endswith("*") for word in line.split()[1:])]
    if over:
        return report_missing("quota", f"used up on {', '.join(over)}", "free disk space")
    return report_ok("quota", "not used up") if answer.ok else report_unknown("quota", answer.problem)


def _revision() -> Check:
    """Return the version and revision of hpcbench, as shown in reports."""
    revision = package_revision()
    if revision is None:
        return report_unknown("version", f"hpcbench {hpcbench.__version__}, installed without its git revision")
    dirty = " with changes" if revision.endswith("-dirty") else ""
    return report_ok("version", f"hpcbench {hpcbench.__version__}, git {revision[:12]}{dirty}")
