"""How fast each scheme trains, in all the units in which people say it."""

from collections.abc import Callable, Mapping
from typing import Any

from hpcbench.collect.lines import printable, text
from hpcbench.collect.submission import Submission
from hpcbench.contract.events import Configuration
from hpcbench.report.compare import Cell, Row, step_time
from hpcbench.report.document import Column, Field, Table, tabulate
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.notation import (
    between,
    estimate,
    flops_unit,
    name,
    percent,
    quantity,
    seconds_unit,
    speed_interval,
)
from hpcbench.report.statistics import Interval
from hpcbench.report.tables.comparison import CHANGE, SCHEME, rate
from hpcbench.report.tables.flops import KINDS, Kind
from hpcbench.report.tables.over_runs import geometric
from hpcbench.report.titles import example

_FORMULAS = {"model": "of the model", "hardware": "executed", "neox": "by NeoX"}
"""Name in the log's configuration event -> what the column is called."""
_NEOX: Kind = (
    "neox_flops_per_rank",
    " by NeoX",
    "FLOP/s that GPT-NeoX's formula gives: what its logs would print, recomputation counted.",
    lambda run: run.neox_flops_per_rank,
)


def speed(submission: Submission, cell: Cell) -> Table | None:
    """Step time with its interval, FLOP/s by kind, utilization, samples and tokens a second.

    Within a cell all of them are in proportion, so that one comparison with the baseline serves for all.
    """
    gpu = is_gpu(example(cell))
    intervals = {row.scheme: _step_time(row) for row in cell.rows}
    unit = seconds_unit(found.estimate for found in intervals.values() if found)
    each = "GPU" if gpu else "rank"

    def flops(key: str, mark: str, what: str, value: Callable[[Measures], float | None]) -> Field[Row]:
        own = flops_unit([geometric(row, value) for row in cell.rows], gpu)
        column = Column(key, own.name + mark, group=1, help=what)
        return column, lambda row: quantity(geometric(row, value), own.show)

    fields: list[Field[Row]] = [
        (SCHEME, lambda row: name(row.scheme)),
        (
            Column("step_seconds", f"step time in {unit.name} (95 % CI)", help="Median of the steps after warm-up."),
            lambda row: estimate(intervals[row.scheme], lambda found: between(found, unit.show, "")),
        ),
        (Column("samples_per_s", "samples/s", help="Global batch over the median step time."), rate),
        (
            Column("speed_ratio", CHANGE, help="Samples/s over the baseline's in the same pairing, with its interval."),
            lambda row: estimate(row.speed, speed_interval),
        ),
        *(flops(*kind) for kind in (*KINDS, _NEOX)),
        (
            Column("mfu", "MFU", group=1, help="Model FLOP/s as a part of the chip's peak."),
            lambda row: quantity(geometric(row, lambda run: run.mfu), percent),
        ),
        (
            Column("hfu", "HFU", group=1, help="Executed FLOP/s as a part of the chip's peak."),
            lambda row: quantity(geometric(row, lambda run: run.hfu), percent),
        ),
        (
            Column("tokens_per_s", "tokens/s", group=1, help="Tokens a second, all ranks together."),
            lambda row: quantity(row.tokens_per_s),
        ),
        (
            Column("tokens_per_s_per_rank", f"tokens/s/{each}", group=1, help=f"Tokens a second of one {each}."),
            lambda row: quantity(geometric(row, lambda run: run.tokens_per_s_per_rank)),
        ),
    ]
    return tabulate("speed", "Speed", cell.rows, fields, notes=_notes(cell))


def _step_time(row: Row) -> Interval | None:
    """Over the runs of a scheme where there are several, else over the steps of the one."""
    return step_time(row.counted[0]) if len(row.counted) == 1 else row.step_seconds


def _notes(cell: Cell) -> list[str]:
    several = any(len(row.counted) > 1 for row in cell.rows)
    notes = [
        "Step time: geometric mean of the runs' medians, its interval by Student's t over the runs."
        if several
        else "Step time: median of the steps, its interval by the bootstrap."
    ]
    said = next((found for run in cell.runs if (found := _formulas(run))), None)
    formulas = [
        f"FLOP/s {name}: {printable(words, 120)}."
        for kind, name in _FORMULAS.items()
        if (words := text(said, kind)) is not None
    ]
    return notes + formulas


def _formulas(run: Measures) -> Mapping[str, Any] | None:
    return run.run.log.said(Configuration).flops_formulas if run.run.log else None
