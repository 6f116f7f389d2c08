"""How much memory each scheme needed at its peak: what a codec's buffers cost."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.contract.events import Memory
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Entry, Field, Table, tabulate
from hpcbench.report.measures import Measures
from hpcbench.report.notation import Unit, bytes_unit, name, quantity, ratio
from hpcbench.report.tables.comparison import SCHEME
from hpcbench.report.tables.over_runs import highest

_KINDS: tuple[tuple[str, str, str, Callable[[Measures], int | None]], ...] = (
    (
        "device_bytes",
        "GPU",
        "Allocated on a GPU by the rank that needed the most.",
        lambda run: run.memory.device,
    ),
    (
        "device_reserved_bytes",
        "GPU reserved",
        "Held on a GPU by PyTorch's allocator, by the rank that held the most.",
        lambda run: run.memory.device_reserved,
    ),
    (
        "host_rank_bytes",
        "host, one rank",
        "Resident in the rank that needed the most.",
        lambda run: run.memory.host_rank,
    ),
    (
        "host_bytes",
        "host, all ranks",
        "Resident in all ranks together; what ranks share counts for each of them.",
        lambda run: run.memory.host,
    ),
)

_STATES = {
    "parameters": "weights that passes compute with",
    "gradients": "whole ones, and the sums that the optimizer reads",
    "optimizer": "master weights and moments",
    "residuals": "what error feedback owes",
}


def memory(submission: Submission, cell: Cell) -> Table | None:
    """Peaks of the run that needed the most, each over the baseline's."""
    fields: list[Field[Row]] = [(SCHEME, lambda row: name(row.scheme))]
    for group, kind in enumerate(_KINDS):
        fields += _pair(cell, group, *kind)
    unit = bytes_unit(highest(row, _held(key)) for row in cell.rows for key in Memory.LASTING)
    fields += [_state(key, unit, len(_KINDS)) for key in Memory.LASTING]
    return tabulate("memory", "Memory: peaks, and what lasts from step to step", cell.rows, fields)


def _held(key: str) -> Callable[[Measures], int | None]:
    return lambda run: run.memory.states.get(key)


def _state(key: str, unit: Unit, group: int) -> Field[Row]:
    where, what, _ = key.split("_")
    column = Column(
        key,
        f"{what if where == 'device' else f'{what}, host'} ({unit.name})",
        group=group,
        help=f"Kept from step to step with the {where} of the rank that holds the most: {_STATES[what]}.",
    )
    return column, lambda row: quantity(highest(row, _held(key)), unit.show)


def _pair(
    cell: Cell, group: int, key: str, head: str, what: str, value: Callable[[Measures], int | None]
) -> list[Field[Row]]:
    """A column of peaks and one of their ratios to the baseline's."""
    unit = bytes_unit(highest(row, value) for row in cell.rows)
    base = cell.row(cell.baseline)
    least = highest(base, value) if base else None

    def change(row: Row) -> Entry:
        peak = highest(row, value)
        return quantity(peak / least if peak is not None and least and row is not base else None, ratio)

    return [
        (
            Column(key, f"{head} ({unit.name})", group=group, help=what),
            lambda row: quantity(highest(row, value), unit.show),
        ),
        (Column(f"{key}_ratio", "vs baseline", group=group, help="That peak over the baseline's."), change),
    ]
