"""The figures of a scheme that programs read, by name, unrounded and in base units (s, B, FLOP/s)."""

from collections.abc import Callable

from hpcbench.report.compare import Row
from hpcbench.report.findings import PValue
from hpcbench.report.tables.over_runs import coded_part, geometric, highest, mean, wire_over_message
from hpcbench.report.tables.traffic import DIMENSIONS, time_part

Figure = Callable[[Row], float | str | None]


def _time(part: str) -> Figure:
    return lambda row: mean(row, lambda run: time_part(run.time, part))


def _wire(dimension: str) -> Figure:
    return lambda row: wire_over_message(row, dimension)


def _coded(dimension: str) -> Figure:
    return lambda row: coded_part(row, dimension)


_TESTS: dict[str, Callable[[Row], PValue | None]] = {
    "speed_p_equal": lambda row: row.speed.equal if row.speed else None,
    "speed_p_at_margin": lambda row: row.speed.at_margin if row.speed else None,
    "loss_p_equal": lambda row: row.loss.equal if row.loss else None,
    "loss_p_apart": lambda row: row.loss.apart if row.loss else None,
    "loss_in_time_p_equal": lambda row: row.loss_in_time.equal if row.loss_in_time else None,
    "loss_in_time_p_apart": lambda row: row.loss_in_time.apart if row.loss_in_time else None,
}
"""Hypotheses of `hpcbench.report.findings`, of which each has a p-value as it is, and one adjusted by Holm's method."""


def _raw(of: Callable[[Row], PValue | None]) -> Figure:
    return lambda row: found.raw if (found := of(row)) else None


def _adjusted(of: Callable[[Row], PValue | None]) -> Figure:
    return lambda row: found.adjusted if (found := of(row)) else None


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
    "loss_in_time_margin": lambda row: row.loss_in_time.margin if row.loss_in_time else None,
    **{f"{name}{end}": p(of) for name, of in _TESTS.items() for end, p in (("", _raw), ("_adjusted", _adjusted))},
    "speed_pairs_enough": lambda row: row.speed.enough if row.speed else None,
    "loss_pairs_enough": lambda row: row.loss.enough if row.loss else None,
    "loss_in_time_pairs_enough": lambda row: row.loss_in_time.enough if row.loss_in_time else None,
    "coded_part": lambda row: row.coded_part,
    **{f"coded_part_{dimension.lower()}": _coded(dimension) for dimension in DIMENSIONS},
}
"""Those that a `Row` does not hold as they are. A new one goes to the end: programs may count columns."""
