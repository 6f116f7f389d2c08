"""The figures of a scheme that programs read, by name, unrounded and in base units (s, B, FLOP/s)."""

from collections.abc import Callable

from hpcbench.report.compare import Row
from hpcbench.report.tables.over_runs import geometric, highest, mean, wire_over_message
from hpcbench.report.tables.traffic import DIMENSIONS, time_part

Figure = Callable[[Row], float | str | None]


def _time(part: str) -> Figure:
    return lambda row: mean(row, lambda run: time_part(run.time, part))


def _wire(dimension: str) -> Figure:
    return lambda row: wire_over_message(row, dimension)


FIGURES: dict[str, Figure] = {
    "hardware_flops_per_rank": lambda row: geometric(row, lambda run: run.hardware_flops_per_rank),
    "unlabelled_flops_per_rank": lambda row: geometric(row, lambda run: run.unlabelled_flops_per_rank),
    "mfu": lambda row: geometric(row, lambda run: run.mfu),
    "hfu": lambda row: geometric(row, lambda run: run.hfu),
    "tokens_per_s_per_rank": lambda row: geometric(row, lambda run: run.tokens_per_s_per_rank),
    **{f"{part}_s": _time(part) for part in ("compute", "exposed", "hidden", "encode", "decode", "transfer")},
    **{f"wire_over_message_{dimension.lower()}": _wire(dimension) for dimension in DIMENSIONS},
    "device_bytes": lambda row: highest(row, lambda run: run.memory.device),
    "device_reserved_bytes": lambda row: highest(row, lambda run: run.memory.device_reserved),
    "host_rank_bytes": lambda row: highest(row, lambda run: run.memory.host_rank),
    "host_bytes": lambda row: highest(row, lambda run: run.memory.host),
    "skipped": lambda row: highest(row, lambda run: run.skipped),
    "nan_steps": lambda row: highest(row, lambda run: run.nan_steps),
}
"""Those that a `Row` does not hold itself: they are taken from its runs."""
