"""The command ``hpcbench bench collectives``: from options to tables and files.

All ranks run it; the first one prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.bench import options, world
from hpcbench.bench.progress import rank_progress
from hpcbench.errors import UserError
from hpcbench.present.results import save

if TYPE_CHECKING:
    from hpcbench.bench.schemes import Wanted

_VALUES = 1 << 22
"""Number of values that are made or read. Longer vectors repeat them, which no codec here can notice."""
_OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")
_CODECS = ("int8:256", "zfp:8", "xpk")


@dataclass(frozen=True)
class Files:
    """Files that `bench collectives` reads and writes; None for files that are not wanted."""

    links: Path | None = None
    """File of `bench network`, by which plans are chosen."""
    tune: Path | None = None
    """A file of the same kind, to which measured times are added. Plans are chosen by it if `links` is not given."""
    outputs: Sequence[Path] = ()
    plots: Path | None = None
    """Directory for figures."""


@dataclass(frozen=True)
class Settings:
    """Settings of `bench collectives`: it measures each operation with each codec, algorithm and number of slices."""

    operations: Sequence[str] = ()
    """Operations; None for all-reduce."""
    codecs: Sequence[str] = ()
    """Codecs; None for a few."""
    algorithms: Sequence[str] = ()
    """Algorithms; None for the best plan that encodes."""
    slices: Sequence[int] = ()
    """Number of slices; None leaves it to the plan."""
    least: str = "1K"
    """First size."""
    most: str = "256M"
    """Last size. The sizes between grow by factors of four."""
    ranks: int | None = None
    """Number of ranks to start on this machine; None if a launcher has started them."""
    repeats: int = 5
    """Number of turns that count."""
    data: str = "gradient"
    """Values, named as for `bench codecs`."""
    plan: bool = False
    """Whether to print the plans and measure nothing."""


def bench_collectives(settings: Settings, files: Files) -> int:
    """Measure collectives with codecs, and the MPI library's own.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        An option is wrong, or the number of ranks is not the wanted one.
    """
    ranks, by = settings.ranks, files.links or files.tune
    with world.one_voice():
        options.check_outputs(files.outputs, files.plots)
        options.check_output("--tune", files.tune)
        wanted = _wanted(settings)
        if settings.plan and ranks is not None and not world.launched():
            from hpcbench.bench.collectives_plans import print_plans

            return print_plans(wanted, ranks, by)
        status = world.start(ranks, "bench collectives")
        if status is not None:
            return status
        comm = world.connect(ranks)
        if settings.plan:
            return _plans(comm, wanted, by)
        return _run(comm, wanted, settings.data, files)


def _plans(comm: Any, wanted: "Wanted", path: Path | None) -> int:
    from hpcbench.bench.collectives_plans import chosen_by, show_plans
    from hpcbench.comm.topology import Topology

    topology = Topology.of(comm)
    links = world.shared(comm, lambda: chosen_by(path, topology))
    return 0 if comm.rank else show_plans(wanted, topology, links)


def _run(comm: Any, wanted: "Wanted", data: str, files: Files) -> int:
    """Measure on all ranks; print and write on the first one."""
    from hpcbench.batch.files import now
    from hpcbench.bench.collectives import Bench
    from hpcbench.bench.collectives_plans import chosen_by
    from hpcbench.bench.collectives_table import CollectiveResults
    from hpcbench.bench.tuning import tuned
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.topology import Topology

    wait = world.waiting(comm)
    about = {"date": now(), **world.description(comm, wait)}
    topology = Topology.of(comm)
    for path in (files.tune, files.links or files.tune):
        links = world.shared(comm, lambda path=path: chosen_by(path, topology))  # type: ignore[misc]
    x = world.shared(comm, lambda: _values(data, min(_VALUES, max(wanted.sizes) // 4)))
    bench = Bench(comm, Progress(wait), links, x)
    with rank_progress(comm.rank) as show:
        rows, left_out = bench.measure_all(wanted, show)
    if not rows:
        raise UserError(f"nothing to measure: {'; '.join(left_out)}")
    if comm.rank == 0:
        title = f"{topology}; {data}, float32; {about['mpi']}; ranks wait: {wait.value}; median of {wanted.repeats}"
        by = files.links or files.tune
        settings = {
            "data": data,
            "type": "float32",
            "repeats": wanted.repeats,
            "links": None if by is None else str(by),
        }
        results = CollectiveResults(rows, left_out, title, {**about, "settings": settings})
        results.show()
        results.save(files.outputs, files.plots)
        if files.tune is not None:
            save(files.tune, tuned(files.tune, rows), "--tune")
    return 0


def _wanted(settings: Settings) -> "Wanted":
    """The settings with all defaults filled in, after checking each of them."""
    options.repeats(settings.repeats)
    for operation in settings.operations:
        options.choice("--op", operation, _OPERATIONS)
    first, last = options.size("--min", settings.least), options.size("--max", settings.most)
    if first < 4 or first % 4:
        raise UserError(f"--min {settings.least}: must be a multiple of 4 bytes, the size of a value")
    if last < first:
        raise UserError(f"--max {settings.most}: is below --min {settings.least}: nothing would be measured")
    for count in settings.slices:
        if not 1 <= count <= 64:
            raise UserError(f"--slices {count}: must be from 1 to 64")
    options.codecs(settings.codecs)
    from hpcbench.bench.schemes import Scheme, Wanted
    from hpcbench.contract.traffic import Algorithm

    known = tuple(algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.NATIVE)
    for algorithm in settings.algorithms:
        if algorithm == Algorithm.NATIVE.value:
            raise UserError("--algorithm native: is measured beside every other one: leave it out")
        options.choice("--algorithm", algorithm, known)
    schemes = [
        Scheme(codec, Algorithm(algorithm), count)
        for codec in settings.codecs or _CODECS
        for algorithm in settings.algorithms or (Algorithm.ENCODED.value,)
        for count in settings.slices or (None,)
    ]
    for scheme in schemes:
        scheme.channel()
    return Wanted(
        tuple(settings.operations) or _OPERATIONS[:1],
        tuple(options.sizes(first, last)),
        tuple(dict.fromkeys(schemes)),
        settings.repeats,
    )


def _values(source: str, n: int) -> Any:
    import numpy as np

    from hpcbench.bench.data import load

    return load(source, n, np.dtype(np.float32))
