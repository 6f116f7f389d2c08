"""The command ``hpcbench bench network``: from options to tables and a file. All ranks run it; the first one prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.bench import options, world
from hpcbench.bench.progress import rank_progress
from hpcbench.errors import UserError

_VALUES = 1 << 20
"""Number of values that codecs are measured on: those of a slice."""


def bench_network(
    codecs: Sequence[str],
    *,
    ranks: int | None = None,
    max_mb: float = 64.0,
    repeats: int = 5,
    outputs: Sequence[Path] = (),
    between_work: bool = False,
) -> int:
    """Measure links, codecs and the MPI library's collectives, and print them.

    Parameters
    ----------
    codecs
        Codecs as in a study; none for some of each family.
    ranks
        Number of ranks to start on this machine; None if a launcher has started them.
    max_mb
        MiB of the largest of the library's collectives.
    repeats
        Number of turns that count.
    outputs
        Files to write, too. JSON is what `hpcbench.comm.links.load` reads.
    between_work
        Whether to measure what calls cost the cores that ranks share, too.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        An option is wrong, or the number of ranks is not the wanted one.
    """
    with world.one_voice():
        options.check_outputs(outputs, figures=False)
        options.repeats(repeats)
        if not 1 / 1024 <= max_mb <= 2**20:
            raise UserError(f"--max-mb {max_mb:g}: must be at least {1 / 1024:g} and at most {2**20}")
        options.codecs(codecs)
        status = world.start(ranks, "bench network")
        if status is not None:
            return status
        comm = world.connect(ranks)
        return _network(comm, codecs, max_mb, repeats, outputs, between_work=between_work)


def _network(
    comm: Any, codecs: Sequence[str], max_mb: float, repeats: int, outputs: Sequence[Path], *, between_work: bool
) -> int:
    import numpy as np

    from hpcbench.batch.files import now
    from hpcbench.bench import network, network_table, shared_cores
    from hpcbench.bench.collectives import Bench
    from hpcbench.bench.data import make
    from hpcbench.comm.links import DEFAULT
    from hpcbench.comm.progress import Progress
    from hpcbench.predict.core_costs import WORK_S

    wait = world.waiting(comm)
    about = {"date": now(), **world.description(comm, wait)}
    progress = Progress(wait)
    x = make("gradient", _VALUES, np.dtype(np.float32))
    bench = Bench(comm, progress, DEFAULT, x)
    wanted = options.sizes(1024, int(max_mb * 2**20))
    skipped = [reason for nbytes in wanted if (reason := bench.too_large(nbytes))]
    sizes = [nbytes for nbytes in wanted if not bench.too_large(nbytes)]
    with rank_progress(comm.rank) as show:
        found = network.measure(comm, progress, bench, codecs or network.CODECS, x, sizes, repeats, show)
    shared: dict[str, Any] = {}
    if between_work:
        most, found_by_work = max(sizes, default=0), []
        for work_s in (*shared_cores.LESS_WORK_S, WORK_S):
            with rank_progress(comm.rank) as show:
                calls = shared_cores.measure(
                    comm, progress, DEFAULT, x, most=most, repeats=repeats, show=show, work_s=work_s
                )
            found_by_work.append({"work_s": work_s, "rows": shared_cores.rows(calls)})
        *less, whole = found_by_work
        shared = {
            "between_work": whole["rows"],
            "less_work": less,
            "waiting_share": shared_cores.waiting_share(comm, progress),
            "waiting_takes": shared_cores.waiting_takes(comm, progress),
            "driving_takes": shared_cores.driving_takes(comm, progress),
        }
    if comm.rank:
        return 0
    title = f"{bench.group.topology}; {about['mpi']}; ranks wait: {wait.value}; median of {repeats}"
    results = network_table.NetworkResults(found, skipped, title, {**about, "repeats": repeats, **shared})
    results.show()
    results.save(outputs)
    return 0
