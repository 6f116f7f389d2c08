"""Table of the traffic of a program's ranks."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hpcbench.programs.exact import explain


def summed(ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum the rows of identical calls over all ranks, and sort the sums by call bytes, largest first."""
    names = ("group", "ranks", "dimension", "call", "dtype", "codec", "why")
    numbers = (
        *("calls", "call_bytes", "message_bytes", "wire_bytes", "coded_bytes", "network_bytes"),
        *("encode_s", "decode_s", "lost_overflows"),
    )
    rows: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(lambda: dict.fromkeys(numbers, 0))
    for rank in ranks:
        for row in rank["rows"]:
            total = rows[tuple(row[name] for name in names)]
            for number in numbers:
                total[number] += row[number]
    sums = [{**dict(zip(names, key, strict=True)), **total} for key, total in rows.items()]
    return sorted(sums, key=lambda row: (-row["call_bytes"], *(str(row[name]) for name in names)))


def table(ranks: Sequence[dict[str, Any]]) -> Table:
    """Return the traffic table of all ranks. Columns for encoded calls are included only if there are such calls."""
    rows = summed(ranks)
    coded = any(row["codec"] for row in rows)
    shown = Table(box=None, pad_edge=False)
    for name in ("group", "dim", "call", "type", "codec"):
        shown.add_column(name)
    for name in ("calls", "MB", *(("sent MB", "wire MB", "encode s", "decode s") if coded else ())):
        shown.add_column(name, justify="right")
    for row in rows:
        cells = [f"{row['group']} ({row['ranks']})", row["dimension"], row["call"], row["dtype"]]
        cells += [row["codec"] or _why(row["why"]), str(row["calls"]), _mb(row["call_bytes"])]
        if coded and row["codec"]:
            cells += [_mb(row["message_bytes"]), _mb(row["wire_bytes"])]
            cells += [f"{row['encode_s']:.3f}", f"{row['decode_s']:.3f}"]
        shown.add_row(*cells)
    return shown


def _why(why: str) -> str:
    head, _, codec = why.partition(": ")
    if head == "dry run":
        return f"would be {codec}"
    return "plain" if why == "no codec" else f"exact: {explain(why)}"


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.3f}"
