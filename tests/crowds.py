"""Which tests run one after another, and which beside them: a test's crowd, for `pytest --dist loadgroup`.

Tests of a crowd share what there is once: the cores, which ranks of MPI want for themselves; the machine's network;
ports and daemons of schedulers. A crowd is one process's work, so tests that wait run beside tests that compute. Each
other file is a crowd of its own. Crowds are markers, too: `make quick` leaves them out. Ranks are two crowds, since all
of them one after another take longer than everything else.
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
    # MPI jobs under Slurm fail where virtual hosts come and go
    "networks": (
        *("benchmarks/test_tiny_hosts.py", "benchmarks/test_overlap.py", "benchmarks/test_throttled_training.py"),
        *("benchmarks/test_predict_measured.py", "testing/test_hosts.py", "testing/test_slurm_cluster.py", "slurm"),
        "programs/test_program_systems.py",
    ),
    "programs": ("programs",),  # one process plays all programs
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
"""Files and folders; the first crowd that names a test has it. Tests whose ranks are forked are among the ranks."""
ENGINE = {HERE / "parallel", HERE / "features"}
"""The folders whose ranks are a crowd without those of the others."""
BUILDERS = ("codecs/test_gpu*", "codecs/test_codec_sanitizer.py", "comm/test_cupy_accelerator.py", "test_wheel.py")
"""They need a compiler."""
LONG = ("batch/test_hostile.py", "report/page/*", "collect/test_damaged_logs.py")
"""They compute for more than half a minute."""
_NAMES_LONG = re.compile(r"mark\.long\b|\bTiers\b")
TURNS = [*NAMED, "compiler", "long", None]


class Of(NamedTuple):
    """The common properties of the tests of a file: its crowd, if it is named, its marker, and its turn."""

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


def assign(items: list[pytest.Item]) -> None:
    """Mark tests with their crowds, and put those first that take longest: a worker that begins late ends late."""
    turns = {}
    for item in items:
        found = of(item.path)
        if "rank_server" in getattr(item, "fixturenames", ()) or found.kind == "ranks":
            found = Of("ranks" if ENGINE & {*item.path.parents} else "other-ranks", "ranks", TURNS.index("ranks"))
        item.add_marker(pytest.mark.xdist_group(found.crowd or item.path.relative_to(HERE).as_posix()))
        if found.kind:
            item.add_marker(found.kind)
        turns[item] = found.turn
    items.sort(key=turns.__getitem__)  # stable: tests of a file stay together


def may_be_long(file: Path) -> bool:
    """Return whether a file of tests mentions tests of `make test-long`, or the `Tiers` that mark them."""
    return _NAMES_LONG.search(file.read_text(encoding="utf-8")) is not None


def refuse_hidden(items: Iterable[pytest.Item]) -> None:
    """Refuse long tests in files that `make test-long` does not import."""
    files = {item.path for item in items if item.get_closest_marker("long")}
    if hidden := [str(file.relative_to(HERE)) for file in files if not may_be_long(file)]:
        raise pytest.UsageError(f"{', '.join(hidden)}: has long tests, but neither names mark.long nor Tiers")


def markers() -> Iterable[str]:
    yield from (f"{name}: in the crowd of {name}, see tests/crowds.py" for name in NAMED)
    yield "compiler: needs a compiler, see tests/crowds.py"
