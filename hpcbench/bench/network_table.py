"""A measured network as tables for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcbench.bench.collectives_table import rate, time
from hpcbench.bench.network import Network
from hpcbench.bench.options import spelled
from hpcbench.contract.text import printable


def render(network: Network, title: str, console: Console) -> None:
    """Print links, codecs, and the library's collectives."""
    console.print(Text(printable(title, 400), style="bold"))
    for table in (_links(network), _codecs(network), _native(network)):
        if table.row_count:
            console.print(Text())
            console.print(table)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="right" if k else "left", overflow="fold")
    return table


def _links(network: Network) -> Table:
    levels = {"within nodes, a rank": network.within, "between nodes, a node": network.between}
    there = {name: level for name, level in levels.items() if level}
    sizes = sorted({nbytes for level in there.values() for nbytes in level.seconds})
    table = _table("links", "latency us", *(f"GB/s at {spelled(nbytes)}" for nbytes in sizes))
    for name, level in there.items():
        table.add_row(name, time(level.latency_s), *(rate(level.rate(nbytes)) for nbytes in sizes))
    return table


def _codecs(network: Network) -> Table:
    table = _table("codec, a rank", "encode GB/s", "decode+add GB/s", "call us", "wire/values")
    for name, speed in network.codecs.items():
        speeds = [rate(each) for each in (speed.encode_bytes_per_s, speed.decode_bytes_per_s)]
        table.add_row(printable(name, 60), *speeds, time(speed.call_s), f"{speed.ratio:.3f}")
    return table


def _native(network: Network) -> Table:
    operations = list(dict.fromkeys(operation for operation, _, _ in network.native))
    seconds = {(operation, nbytes): taken for operation, nbytes, taken in network.native}
    table = _table("MPI library, us", *operations)
    for nbytes in sorted({nbytes for _, nbytes, _ in network.native}):
        table.add_row(spelled(nbytes), *(time(seconds[operation, nbytes]) for operation in operations))
    return table
