"""Crowds: groups of tests for `pytest --dist loadgroup`. The tests of a crowd run sequentially in one process.

The tests of a crowd share a resource that exists only once: the cores, which MPI ranks need for themselves; the
machine's network; or the ports and daemons of schedulers. Different crowds run in parallel, so that waiting tests
overlap with computing tests. Each file that belongs to no named crowd forms its own crowd. The names of crowds are also
markers, which `make quick` excludes. Tests that start ranks form two crowds, because a single crowd would take longer
than all other tests.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
NAMED = {
    "ranks": (
        *("bench/test_bench_collectives.py", "bench/test_bench_network.py", "bench/test_bench_progress.py"),
        "comm/test_openmpi.py",
    ),
    # MPI jobs under Slurm fail while virtual hosts are created or removed
    "networks": (
        *("benchmarks/test_tiny_hosts.py", "benchmarks/test_overlap.py", "benchmarks/test_throttled_training.py"),
        *("benchmarks/test_predict_measured.py", "testing/test_hosts.py", "testing/test_slurm_cluster.py", "slurm"),
        "programs/test_program_systems.py",
    ),
    "programs": ("programs",),  # one process runs all programs
    "daemons": ("lsf", "flux", "testing", "batch/submitit", "doctor"),
    "jobs": (
        "test_end_to_end.py",
        "batch/test_local.py",
        "batch/test_again.py",
        "batch/test_lock.py",
        "batch/test_full_disk.py",
        "benchmarks",
    ),
}
"""Files and folders of each crowd. The first match applies. Tests with forked ranks belong to the crowd of ranks."""
ENGINE = {HERE / "parallel", HERE / "features"}
"""Folders whose tests with ranks form a separate crowd."""
BUILDERS = ("codecs/test_gpu*", "codecs/test_codec_sanitizer.py", "comm/test_cupy_accelerator.py", "test_wheel.py")
"""Files whose tests need a compiler."""
LONG = ("batch/test_hostile.py", "report/page/*", "collect/test_damaged_logs.py")
"""Files whose tests compute for more than half a minute."""
_NAMES_LONG = re.compile(r"mark\.long\b|\bTiers\b")
TURNS = [*NAMED, "compiler", "long", None]


class Of(NamedTuple):
    """Crowd of a file's tests (None if unnamed), marker, and position in the order of execution."""

    crowd: str | None
    kind: str | None
    turn: int


@cache
def of(file: Path) -> Of:
    place = file.relative_to(HERE)
    around = {str(path) for path in (place, *place.parents)}
    crowd = next((crowd for crowd, places in NAMED.items() if around & set(places)), None)
    kind = crowd or ("compiler" if _among(place, BUILDERS) else None)
    return Of(crowd, kind, TURNS.index(kind or ("long" if _among(place, LONG) else None)))


def _among(place: Path, patterns: tuple[str, ...]) -> bool:
    return any(place.match(pattern) for pattern in patterns)


@cache
def of_ranks(file: Path) -> Of:
    """Return the crowd, marker and turn of tests that start ranks."""
    return Of("ranks" if ENGINE & {*file.parents} else "other-ranks", "ranks", TURNS.index("ranks"))


def assign(items: list[pytest.Item]) -> None:
    """Mark tests with their crowds, and sort them, longest first.

    A long test that started late would delay the end.
    """
    turns: dict[int, list[pytest.Item]] = {turn: [] for turn in range(len(TURNS))}
    names = {file: file.relative_to(HERE).as_posix() for file in {item.path for item in items}}
    for item in items:
        group = of(item.path)
        if "rank_server" in getattr(item, "fixturenames", ()) or group.kind == "ranks":
            group = of_ranks(item.path)
        item.add_marker(pytest.mark.xdist_group(group.crowd or names[item.path]))
        if group.kind:
            item.add_marker(group.kind)
        turns[group.turn].append(item)
    items[:] = [item for turn in turns.values() for item in turn]  # keep the tests of a file together


def may_be_long(file: Path) -> bool:
    """Return whether a test file mentions the marker `long`, or `Tiers`, which sets the marker."""
    return _NAMES_LONG.search(file.read_text(encoding="utf-8")) is not None


def refuse_hidden(items: Iterable[pytest.Item]) -> None:
    """Reject long tests in files that `make test-long` does not import."""
    files = {item.path for item in items if item.get_closest_marker("long")}
    if hidden := [str(file.relative_to(HERE)) for file in files if not may_be_long(file)]:
        raise pytest.UsageError(f"{', '.join(hidden)}: has long tests, but neither names mark.long nor Tiers")


def markers() -> Iterable[str]:
    yield from (f"{name}: in the crowd of {name}, see tests/crowds.py" for name in NAMED)
    yield "compiler: needs a compiler, see tests/crowds.py"
