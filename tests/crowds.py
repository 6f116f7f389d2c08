"""Which tests run one after another, and which beside them: a test's crowd, for `pytest --dist loadgroup`.

Tests of a crowd share what there is once: the cores, which ranks of MPI want for themselves; the machine's network;
ports and daemons of schedulers. A crowd is one process's work, so tests that wait run beside tests that compute. Each
other file is a crowd of its own. Crowds are markers, too: `make quick` leaves them out.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMED = {
    "ranks": ("bench/test_bench_collectives.py", "bench/test_bench_network.py", "bench/test_bench_progress.py"),
    # MPI jobs under Slurm fail where virtual hosts come and go
    "networks": ("benchmarks", "testing/test_hosts.py", "testing/test_slurm_cluster.py", "slurm"),
    "daemons": ("lsf", "flux", "testing", "batch/submitit", "doctor"),
    "jobs": ("test_end_to_end.py", "batch/test_local.py", "batch/test_again.py", "batch/test_lock.py"),
}
"""Files and folders; the first crowd that names a test has it. Tests whose ranks are forked are among the ranks."""
BUILDERS = ("codecs/test_gpu*", "codecs/test_codec_sanitizer.py", "test_wheel.py")
"""They need a compiler."""
LONG = ("batch/test_hostile.py", "report/page/*", "collect/test_damaged_logs.py")
"""They compute for more than half a minute."""


def crowd_of(item: pytest.Item) -> str | None:
    """The crowd of a test; None where its file is one."""
    if "rank_server" in getattr(item, "fixturenames", ()):
        return "ranks"
    place = item.path.relative_to(HERE)
    around = {str(path) for path in (place, *place.parents)}
    return next((crowd for crowd, places in NAMED.items() if around & set(places)), None)


def among(item: pytest.Item, patterns: tuple[str, ...]) -> bool:
    return any(item.path.relative_to(HERE).match(pattern) for pattern in patterns)


def assign(items: list[pytest.Item]) -> None:
    """Mark tests with their crowds, and put those first that take longest: a worker that begins late ends late."""
    order = [*NAMED, "compiler", "long", None]
    turns = {}
    for item in items:
        crowd = crowd_of(item)
        kind = crowd or ("compiler" if among(item, BUILDERS) else None)
        item.add_marker(pytest.mark.xdist_group(crowd or item.path.relative_to(HERE).as_posix()))
        if kind:
            item.add_marker(kind)
        turns[item] = order.index(kind or ("long" if among(item, LONG) else None))
    items.sort(key=turns.__getitem__)  # stable: tests of a file stay together


def markers() -> Iterable[str]:
    yield from (f"{name}: in the crowd of {name}, see tests/crowds.py" for name in NAMED)
    yield "compiler: needs a compiler, see tests/crowds.py"
