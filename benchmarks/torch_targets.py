"""Ratios, tables and targets of torch_collectives.py."""

from typing import Any

from rich.table import Table

from hpcbench.report.statistics import Interval, paired_difference, paired_ratio

PLAIN, INTERPOSED, HANDED_ON, ONE_RANK = "plain gloo", "interposed", "handed on", "call of one rank"
MET, NOT_MET, UNDECIDED, UNKNOWN = "met", "not met", "not decided", "not decided by one repeat"


def ratio(rows: list[dict[str, Any]], rate: str, call: str, nbytes: int, mode: str) -> Interval | None:
    """Return the speed of a mode relative to plain gloo."""
    times = {
        row["mode"]: row["seconds"] for row in rows if (row["rate"], row["call"], row["bytes"]) == (rate, call, nbytes)
    }
    return paired_ratio(times[PLAIN], times[mode]) if mode in times and PLAIN in times else None


def targets(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line for each target, which is met only if the whole interval is on the required side."""
    estimate = []
    alone = {row["mode"]: row["seconds"] for row in rows if (row["rate"], row["call"]) == ("none", ONE_RANK)}
    if {PLAIN, INTERPOSED} <= set(alone):
        more = _more(alone, INTERPOSED)
        estimate.append(
            f"a plain call costs {_format_interval(more, 'us', 1)} more (at most 20): {_met(more, 20, at_most=True)}"
        )
    if {PLAIN, HANDED_ON} <= set(alone):
        estimate.append(
            f"a kernel in Python that only hands it on costs {_format_interval(_more(alone, HANDED_ON), 'us', 1)} more"
        )
    wanted = [("none", 1.4), ("200mbit", 3.0)]
    for rate, least in wanted:
        gain = ratio(rows, rate, "all-reduce", 16 << 20, "int8")
        if gain is not None:
            where = "loopback" if rate == "none" else rate
            estimate.append(
                f"int8 all-reduce of 16 MiB, {where}: {_format_interval(gain)} (at least {least}): {_met(gain, least)}"
            )
    autos = [
        (gain, row)
        for row in rows
        if row["mode"] == "auto int8" and (gain := ratio(rows, row["rate"], row["call"], row["bytes"], row["mode"]))
    ]
    if autos:
        worst, row = min(autos, key=lambda pair: pair[0].estimate)
        every = {_met(gain, 0.97) for gain, _ in autos}
        met = next(result for result in (NOT_MET, UNKNOWN, UNDECIDED, MET) if result in every)
        at = f"{row['call']} of {row['bytes']} B at {row['rate']}"
        estimate.append(
            f"the slowest of {len(autos)} with auto: {_format_interval(worst)}, {at} (each at least 0.97): {met}"
        )
    return estimate


def _more(alone: dict[str, list[float]], mode: str) -> Interval:
    """Return the additional time of a call compared with a plain call, in microseconds."""
    return paired_difference([1e6 * s for s in alone[mode]], [1e6 * s for s in alone[PLAIN]])


def _format_interval(estimate: Interval, unit: str = "x", digits: int = 2) -> str:
    ends = "" if estimate.low is None else f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    return f"{estimate.estimate:.{digits}f} {unit}{ends}"


def _met(estimate: Interval, bound: float, *, at_most: bool = False) -> str:
    if estimate.low is None or estimate.high is None:
        return UNKNOWN
    above, below = estimate.low >= bound, estimate.high < bound
    if at_most:
        above, below = estimate.high <= bound, estimate.low > bound
    return MET if above else NOT_MET if below else UNDECIDED


def table(rows: list[dict[str, Any]], rate: str, call: str) -> Table:
    """Make a table with a row for each mode and two columns for each size."""
    rows_of_call = [row for row in rows if (row["rate"], row["call"]) == (rate, call)]
    where = "on this machine" if rate == "none" else f"over links of {rate}"
    page = Table(title=f"{call} {where}", box=None, pad_edge=False)
    page.add_column("mode")
    sizes = list(dict.fromkeys(row["bytes"] for row in rows_of_call))
    for nbytes in sizes:
        page.add_column(f"{nbytes >> 10} KiB, ms", justify="right")
        page.add_column("x plain", justify="right")
    for mode in dict.fromkeys(row["mode"] for row in rows_of_call):
        cells = []
        for nbytes in sizes:
            times = next(row["seconds"] for row in rows_of_call if (row["mode"], row["bytes"]) == (mode, nbytes))
            gain = ratio(rows, rate, call, nbytes, mode)
            cells += [
                f"{sorted(times)[len(times) // 2] * 1e3:.2f}",
                _format_interval(gain).replace(" x", "") if gain else "-",
            ]
        page.add_row(mode, *cells)
    return page
