"""Command ``hpcbench bench network``, from options to tables and a file.

All ranks run the command, and the first rank prints.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.bench import options, world
from hpcbench.bench.progress import rank_progress
from hpcbench.errors import UserError

_VALUES = 1 << 20
"""Number of values in the codec measurements, equal to the size of a slice."""


def bench_network(
    codecs: Sequence[str],
    *,
    ranks: int | None = None,
    max_mb: float = 64.0,
    repeats: int = 5,
    outputs: Sequence[Path] = (),
    between_work: bool = False,
) -> int:
    """Measure links, codecs and the MPI library's collectives, and print the results.

    Parameters
    ----------
    codecs
        Codec names, written as in a study. If empty, some codecs of each family.
    ranks
        Number of ranks to start on this machine, or None if a launcher has started them.
    max_mb
        Size of the library's largest collective in MiB.
    repeats
        Number of timed repeats.
    outputs
        Files to write. JSON files can be read by `hpcbench.comm.links.load`.
    between_work
        Whether to measure the core time of calls that are made between computations.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        An option is wrong, or the number of ranks differs from `ranks`.
    """
    with world.report_once():
        options.check_outputs(outputs, figures=False)
        options.check_repeats(repeats)
        if not 1 / 1024 <= max_mb <= 2**20:
            raise UserError(f"--max-mb {max_mb:g}: must be at least {1 / 1024:g} and at most {2**20}")
        options.check_codecs(codecs)
        status = world.start(ranks, "bench network")
        if status is not None:
            return status
        comm = world.connect(ranks)
        return _measure_and_show(comm, codecs, max_mb, repeats, outputs, between_work=between_work)


def _measure_and_show(
    comm: Any, codecs: Sequence[str], max_mb: float, repeats: int, outputs: Sequence[Path], *, between_work: bool
) -> int:
    import numpy as np

    from hpcbench.batch.files import now
    from hpcbench.bench import network, network_table, shared_cores
    from hpcbench.bench.collectives import Bench
    from hpcbench.bench.data import make_values
    from hpcbench.comm.links import DEFAULT
    from hpcbench.comm.progress import Progress

    wait = world.choose_wait(comm)
    about = {"date": now(), **world.describe_ranks(comm, wait)}
    progress = Progress(wait)
    x = make_values("gradient", _VALUES, np.dtype(np.float32))
    bench = Bench(comm, progress, DEFAULT, x)
    wanted = options.list_sizes(1024, int(max_mb * 2**20))
    skipped = [reason for nbytes in wanted if (reason := bench.explain_too_large(nbytes))]
    sizes = [nbytes for nbytes in wanted if not bench.explain_too_large(nbytes)]
    with rank_progress(comm.rank) as show:
        measured = network.measure(comm, progress, bench, codecs or network.CODECS, x, sizes, repeats, show)
    shared: dict[str, Any] = {}
    if between_work:
        most = max(sizes, default=0)
        with rank_progress(comm.rank) as show:
            calls = shared_cores.measure(comm, progress, DEFAULT, x, most=most, repeats=repeats, show=show)
        shared = {"between_work": shared_cores.make_rows(calls)}
    if comm.rank:
        return 0
    title = f"{bench.group.topology}; {about['mpi']}; wait strategy: {wait.value}; median of {repeats}"
    results = network_table.NetworkResults(measured, skipped, title, {**about, "repeats": repeats, **shared})
    results.show()
    results.save(outputs)
    return 0
