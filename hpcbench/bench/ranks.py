"""``hpcbench bench network`` and ``bench collectives``: from options to tables and files, on several ranks.

Every rank runs the same; the first one prints and writes.
"""

import json as json_format
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hpcbench.bench import options, world
from hpcbench.console import columns
from hpcbench.errors import UserError

if TYPE_CHECKING:
    from hpcbench.bench.collectives import Row, Wanted
    from hpcbench.comm.links import Links
    from hpcbench.comm.topology import Topology

_VALUES = 1 << 22
"""Values that are made or read; longer vectors repeat them, which no codec here can see."""
_CODEC_VALUES = 1 << 20
_OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all")
_CODECS = ("int8:256", "zfp:8", "xpk")


def bench_network(
    codecs: Sequence[str],
    *,
    ranks: int | None = None,
    max_mb: float = 64.0,
    repeats: int = 5,
    json: Path | None = None,
) -> int:
    """Measure links, codecs and the MPI library's collectives, and print them.

    Parameters
    ----------
    codecs
        As in a study; none for some of each family.
    ranks
        How many to start on this machine; None where a launcher has started them.
    max_mb
        MiB of the largest of the library's collectives.
    repeats
        Turns that count.
    json
        File for `hpcbench.comm.links.load`.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        An option is wrong, or the ranks are not those that were asked for.
    """
    with world.one_voice():
        options.check_output("--json", json)
        options.repeats(repeats)
        if not 1 / 1024 <= max_mb <= 2**20:
            raise UserError(f"--max-mb {max_mb:g}: must be at least {1 / 1024:g} and at most {2**20}")
        _check_codecs(codecs)
        status = world.start(ranks, "bench network")
        if status is not None:
            return status
        comm = world.connect(ranks)
        return _network(comm, codecs, max_mb, repeats, json)


def _network(comm: Any, codecs: Sequence[str], max_mb: float, repeats: int, json: Path | None) -> int:
    from hpcbench.batch.files import now
    from hpcbench.bench import network, network_table
    from hpcbench.bench.collectives import Bench
    from hpcbench.comm.links import DEFAULT, SCHEMA
    from hpcbench.comm.progress import Progress

    wait = world.waiting(comm)
    about = {"date": now(), **world.description(comm, wait)}
    progress = Progress(wait)
    x = _values("gradient", _CODEC_VALUES)
    bench = Bench(comm, progress, DEFAULT, x)
    wanted = options.sizes(1024, int(max_mb * 2**20))
    skipped = [reason for nbytes in wanted if (reason := bench.too_large(nbytes))]
    sizes = [nbytes for nbytes in wanted if not bench.too_large(nbytes)]
    with _progress(comm.rank) as show:
        found = network.measure(comm, progress, bench, codecs or network.CODECS, x, sizes, repeats, show)
    if comm.rank:
        return 0
    title = f"{bench.group.topology}; {about['mpi']}; ranks wait: {wait.value}; median of {repeats}"
    network_table.render(found, title, _console())
    _say(skipped)
    if json is not None:
        document = {"schema": SCHEMA, **found.as_links(), **about, "repeats": repeats}
        options.save("--json", json, json_format.dumps(document, indent=1, allow_nan=False) + "\n")
    return 0


def bench_collectives(
    *,
    operations: Sequence[str] = (),
    codecs: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    slices: Sequence[int] = (),
    least: str = "1K",
    most: str = "256M",
    ranks: int | None = None,
    repeats: int = 5,
    data: str = "gradient",
    links: Path | None = None,
    tune: Path | None = None,
    plan: bool = False,
    json: Path | None = None,
    csv: Path | None = None,
    plot: Path | None = None,
) -> int:
    """Measure collectives with codecs beside the MPI library's own.

    Parameters
    ----------
    operations, codecs, algorithms, slices
        What to measure, each with each; by default all-reduce, some codecs, the best plan that encodes, and as many
        slices as it takes.
    least, most
        Sizes; those between by factors of four.
    ranks
        How many to start on this machine; None where a launcher has started them.
    repeats
        Turns that count.
    data
        As of `bench codecs`.
    links
        What plans are chosen by, as `bench network` wrote it.
    tune
        Such a file, which the measured times are added to; plans are chosen by it where `links` is not given.
    plan
        Print the plans and measure nothing.
    json, csv, plot
        Files to write beside.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        An option is wrong, or the ranks are not those that were asked for.
    """
    with world.one_voice():
        for option, path in (("--json", json), ("--csv", csv), ("--plot", plot), ("--tune", tune)):
            options.check_output(option, path)
        wanted = _wanted(operations, codecs, algorithms, slices, least, most, repeats)
        if plot is not None:
            from hpcbench.bench import collectives_plot  # noqa: F401  # says now what it lacks
        if plan and ranks is not None and not world.launched():
            return _print_plans(wanted, ranks, links or tune)
        status = world.start(ranks, "bench collectives")
        if status is not None:
            return status
        comm = world.connect(ranks)
        if plan:
            from hpcbench.comm.topology import Topology

            topology = Topology.of(comm)
            chosen_by = world.shared(comm, lambda: _links(links or tune, topology))
            return 0 if comm.rank else _show_plans(wanted, topology, chosen_by)
        return _collectives(comm, wanted, data, links, tune, json, csv, plot)


def _collectives(
    comm: Any,
    wanted: "Wanted",
    data: str,
    links: Path | None,
    tune: Path | None,
    json: Path | None,
    csv: Path | None,
    plot: Path | None,
) -> int:
    from hpcbench.batch.files import now
    from hpcbench.bench import collectives_table as table
    from hpcbench.bench.collectives import Bench, planned
    from hpcbench.comm.plan import Plan
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.topology import Topology

    wait = world.waiting(comm)
    about = {"date": now(), **world.description(comm, wait)}
    topology = Topology.of(comm)
    chosen_by = world.shared(comm, lambda: _links(links or tune, topology))
    if tune is not None:
        world.shared(comm, lambda: _links(tune, topology))
    x = world.shared(comm, lambda: _values(data, min(_VALUES, max(wanted.sizes) // 4)))
    bench = Bench(comm, Progress(wait), chosen_by, x)
    skipped = [reason for nbytes in wanted.sizes if (reason := bench.too_large(nbytes))]
    rows: list[Row] = []
    with _progress(comm.rank) as show:
        for operation, nbytes in wanted.cases():
            if bench.too_large(nbytes):
                continue
            plans = {scheme: planned(operation, nbytes, scheme, topology, chosen_by) for scheme in wanted.schemes}
            able = [scheme for scheme, found in plans.items() if isinstance(found, Plan) or operation == "all-to-all"]
            skipped += [str(found) for scheme, found in plans.items() if scheme not in able]
            case = f"{operation} {options.spelled(nbytes)}"
            rows += bench.measure(
                operation,
                nbytes,
                able,
                wanted.repeats,
                lambda done, total, name, case=case: show(done, total, f"{case}, {name}"),  # type: ignore[misc]
            )
    skipped = list(dict.fromkeys(skipped))
    if not rows:
        raise UserError(f"nothing to measure: {'; '.join(skipped)}")
    if comm.rank:
        return 0
    title = f"{topology}; {data}, float32; {about['mpi']}; ranks wait: {wait.value}; median of {wanted.repeats}"
    table.render(rows, title, _console())
    _say(skipped)
    settings = {
        "data": data,
        "type": "float32",
        "repeats": wanted.repeats,
        "links": str(links or tune) if links or tune else None,
        "schemes": [str(scheme) for scheme in wanted.schemes],
    }
    if json is not None:
        options.save("--json", json, table.as_json(rows, about, settings, skipped))
    if csv is not None:
        options.save("--csv", csv, table.as_csv(rows))
    if plot is not None:
        from hpcbench.bench.collectives_plot import draw

        draw(rows, title, plot)
    if tune is not None:
        from hpcbench.bench.tuning import tuned

        options.save("--tune", tune, tuned(tune, rows))
    return 0


def _wanted(
    operations: Sequence[str],
    codecs: Sequence[str],
    algorithms: Sequence[str],
    slices: Sequence[int],
    least: str,
    most: str,
    repeats: int,
) -> "Wanted":
    """The options as they were meant; each is checked."""
    options.repeats(repeats)
    for operation in operations:
        options.choice("--op", operation, _OPERATIONS)
    first, last = options.size("--min", least), options.size("--max", most)
    if first < 4 or first % 4:
        raise UserError(f"--min {least}: must be a multiple of 4 bytes, the size of a value")
    if last < first:
        raise UserError(f"--max {most}: is below --min {least}: nothing would be measured")
    for count in slices:
        if not 1 <= count <= 64:
            raise UserError(f"--slices {count}: must be from 1 to 64")
    _check_codecs(codecs)
    from hpcbench.bench.collectives import Scheme, Wanted
    from hpcbench.comm.channel import Algorithm

    known = tuple(algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.NATIVE)
    for algorithm in algorithms:
        if algorithm == Algorithm.NATIVE.value:
            raise UserError("--algorithm native: is measured beside every other one: leave it out")
        options.choice("--algorithm", algorithm, known)
    schemes = [
        Scheme(codec, Algorithm(algorithm), count)
        for codec in codecs or _CODECS
        for algorithm in algorithms or (Algorithm.ENCODED.value,)
        for count in slices or (None,)
    ]
    for scheme in schemes:
        scheme.channel()
    return Wanted(
        tuple(operations) or _OPERATIONS[:1], tuple(options.sizes(first, last)), tuple(dict.fromkeys(schemes)), repeats
    )


def _check_codecs(names: Sequence[str]) -> None:
    try:
        from hpcbench.codecs.registry import get_codec
    except ModuleNotFoundError as error:
        raise UserError(f"bench: needs {error.name}: pip install 'hpcbench[train]'") from None
    for name in names:
        try:
            get_codec(name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UserError(str(error) if name in str(error) else f"codec {name}: {error}") from None


def _links(path: Path | None, topology: "Topology") -> "Links":
    """What the file says; refused where it was measured on other ranks."""
    from hpcbench.comm.links import DEFAULT, load

    if path is None:
        return DEFAULT
    found = load(path)
    reason = found.foreign(topology)
    if reason:
        raise UserError(f"{path}: {reason}: measure these ranks with `hpcbench bench network --json FILE`")
    return found


def _print_plans(wanted: "Wanted", ranks: int, links: Path | None) -> int:
    """Without any rank: on the nodes that the file names, else on one."""
    from hpcbench.comm.links import DEFAULT, load
    from hpcbench.comm.topology import Topology

    found = load(links) if links else DEFAULT
    nodes = found.ranks_per_node
    topology = Topology.by_label([node for node, count in enumerate(nodes) for _ in range(count)])
    if sum(nodes) != ranks:
        topology = Topology.flat(ranks)
    return _show_plans(wanted, topology, _links(links, topology))


def _show_plans(wanted: "Wanted", topology: "Topology", links: "Links") -> int:
    from hpcbench.bench.collectives import planned

    for operation, nbytes in wanted.cases():
        for scheme in wanted.schemes:
            chosen = planned(operation, nbytes, scheme, topology, links)
            print(f"{operation} {options.spelled(nbytes)}, {scheme}: {chosen}")
    return 0


def _values(source: str, n: int) -> Any:
    import numpy as np

    from hpcbench.bench.data import load

    return load(source, n, np.dtype(np.float32))


def _progress(rank: int) -> Any:
    from hpcbench.bench.progress import progress

    return nullcontext(lambda done, total, name: None) if rank else progress()


def _console() -> Console:
    return Console(width=columns(), highlight=False)


def _say(skipped: Sequence[str]) -> None:
    for reason in skipped:
        print(f"Not measured: {reason}")
