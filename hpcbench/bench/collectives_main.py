"""Command ``hpcbench bench collectives``, from options to tables and files.

All ranks run the command, and the first rank prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.bench import options, world
from hpcbench.bench.progress import rank_progress
from hpcbench.errors import UserError
from hpcbench.present.results import check_output, save

if TYPE_CHECKING:
    from hpcbench.bench.schemes import Wanted

_VALUES = 1 << 22
"""Number of values that are generated or read.

Longer vectors repeat these values. None of the measured codecs benefits from the repetition.
"""
_OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")
_CODECS = ("int8:256", "zfp:8", "xpk")


@dataclass(frozen=True)
class BenchFiles:
    """Files that `bench collectives` reads and writes. Unused files are None."""

    links: Path | None = None
    """File written by `bench network`, used to choose plans."""
    tune: Path | None = None
    """File in the same format as `links`, to which measured times are added.

    If `links` is None, this file is used to choose plans.
    """
    outputs: Sequence[Path] = ()
    plots: Path | None = None
    """Directory for figures."""


@dataclass(frozen=True)
class Settings:
    """Settings of `bench collectives`, which measures all combinations of operation, codec, algorithm and slices."""

    operations: Sequence[str] = ()
    """Operations. An empty sequence selects all-reduce."""
    codecs: Sequence[str] = ()
    """Codecs. An empty sequence selects a default set."""
    algorithms: Sequence[str] = ()
    """Algorithms. An empty sequence selects the best plan with a codec."""
    slices: Sequence[int] = ()
    """Numbers of slices. An empty sequence selects the plan's number of slices."""
    least: str = "1K"
    """First size."""
    most: str = "256M"
    """Largest size. Sizes grow by factors of four."""
    ranks: int | None = None
    """Number of ranks to start on this machine, or None if a launcher has started the ranks."""
    repeats: int = 5
    """Number of timed repeats."""
    data: str = "gradient"
    """Values, named as for `bench codecs`."""
    plan: bool = False
    """Whether to print the plans and measure nothing."""


def bench_collectives(settings: Settings, files: BenchFiles) -> int:
    """Measure collectives with codecs, and the collectives of the MPI library.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        An option is wrong, or the number of ranks differs from the requested number.
    """
    ranks, by = settings.ranks, files.links or files.tune
    with world.report_once():
        options.check_outputs(files.outputs, files.plots)
        check_output("--tune", files.tune)
        wanted = _check_settings(settings)
        if settings.plan and ranks is not None and not world.is_launched():
            from hpcbench.bench.collectives_plans import print_plans

            return print_plans(wanted, ranks, by)
        status = world.start(ranks, "bench collectives")
        if status is not None:
            return status
        comm = world.connect(ranks)
        if settings.plan:
            return _show_plans(comm, wanted, by)
        return _run(comm, wanted, settings.data, files)


def _show_plans(comm: Any, wanted: "Wanted", path: Path | None) -> int:
    from hpcbench.bench.collectives_plans import load_links, show_plans
    from hpcbench.comm.topology import Topology

    topology = Topology.of(comm)
    links = world.share(comm, lambda: load_links(path, topology))
    return 0 if comm.rank else show_plans(wanted, topology, links)


def _run(comm: Any, wanted: "Wanted", data: str, files: BenchFiles) -> int:
    """Measure on all ranks. Print and write the results on the first rank."""
    from hpcbench.batch.files import now
    from hpcbench.bench.collectives import Bench
    from hpcbench.bench.collectives_plans import load_links
    from hpcbench.bench.collectives_table import CollectiveResults
    from hpcbench.bench.tuning import merge_times
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.topology import Topology

    wait = world.choose_wait(comm)
    about = {"date": now(), **world.describe_ranks(comm, wait)}
    topology = Topology.of(comm)
    for path in (files.tune, files.links or files.tune):
        links = world.share(comm, lambda path=path: load_links(path, topology))  # type: ignore[misc]
    x = world.share(comm, lambda: _load(data, min(_VALUES, max(wanted.sizes) // 4)))
    bench = Bench(comm, Progress(wait), links, x)
    with rank_progress(comm.rank) as show:
        rows, left_out = bench.measure_all(wanted, show)
    if not rows:
        raise UserError(f"nothing to measure: {'; '.join(left_out)}")
    if comm.rank == 0:
        title = f"{topology}; {data}, float32; {about['mpi']}; wait strategy: {wait.value}; median of {wanted.repeats}"
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
            save(files.tune, merge_times(files.tune, rows), "--tune")
    return 0


def _check_settings(settings: Settings) -> "Wanted":
    """Check the settings and fill in defaults."""
    options.check_repeats(settings.repeats)
    for operation in settings.operations:
        options.check_choice("--op", operation, _OPERATIONS)
    first, last = options.parse_size("--min", settings.least), options.parse_size("--max", settings.most)
    if first < 4 or first % 4:
        raise UserError(f"--min {settings.least}: must be a multiple of 4 bytes, the size of a value")
    if last < first:
        raise UserError(f"--max {settings.most}: is below --min {settings.least}")
    for count in settings.slices:
        if not 1 <= count <= 64:
            raise UserError(f"--slices {count}: must be from 1 to 64")
    options.check_codecs(settings.codecs)
    from hpcbench.bench.schemes import MeasuredScheme, Wanted
    from hpcbench.contract.traffic import Algorithm

    choices = tuple(algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.NATIVE)
    for algorithm in settings.algorithms:
        if algorithm == Algorithm.NATIVE.value:
            raise UserError("--algorithm native: is always measured. Leave native out")
        options.check_choice("--algorithm", algorithm, choices)
    schemes = [
        MeasuredScheme(codec, Algorithm(algorithm), count)
        for codec in settings.codecs or _CODECS
        for algorithm in settings.algorithms or (Algorithm.ENCODED.value,)
        for count in settings.slices or (None,)
    ]
    for scheme in schemes:
        scheme.channel()
    return Wanted(
        tuple(settings.operations) or _OPERATIONS[:1],
        tuple(options.list_sizes(first, last)),
        tuple(dict.fromkeys(schemes)),
        settings.repeats,
    )


def _load(source: str, n: int) -> Any:
    import numpy as np

    from hpcbench.bench.data import load_values

    return load_values(source, n, np.dtype(np.float32))
