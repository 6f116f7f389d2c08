"""The report as CSV: a row for each scheme and cell, with figures in base units (s, B, FLOP/s) that are not rounded.

The wire bytes are `unknown` if the MPI library may have compressed by itself.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.features.energy.report.table import AGAINST_BASELINE as ENERGY
from hpcbench.present.records import write_csv
from hpcbench.report.build import Section
from hpcbench.report.columns import LATER_TESTS, LOSS, LOSS_IN_TIME, SPEED, STEP_TIME, TESTS, Figure
from hpcbench.report.compare import Cell, Row
from hpcbench.report.front import Front, front
from hpcbench.report.quantities import Quantity, resources, speed, traffic
from hpcbench.report.quantities.catalogue import CATALOGUE
from hpcbench.report.weaknesses import Weakened, weakened

_AHEAD = (
    *(speed.MODEL_FLOPS, speed.SAMPLES, speed.TOKENS, speed.STEP_SECONDS),
    *(speed.LOSS_VALID, traffic.WIRE),
)
"""Columns that stand before the differences from the baseline."""
_FIRST = (
    *(speed.HARDWARE_FLOPS, speed.UNLABELLED_FLOPS, speed.MFU, speed.HFU, speed.TOKENS_EACH),
    *(traffic.COMPUTE, traffic.EXPOSED, traffic.HIDDEN, traffic.ENCODE, traffic.DECODE, traffic.TRANSFER),
    *traffic.WIRES,
    *(resources.DEVICE, resources.RESERVED, resources.HOST_RANK, resources.HOST),
    *(speed.SKIPPED, speed.NAN_STEPS),
)
_NEXT = (traffic.CODED, *traffic.CODEDS)


def _of(*quantities: Quantity) -> dict[str, Figure]:
    return {one.key: _figure(one) for one in quantities}


def _figure(quantity: Quantity) -> Figure:
    def figure(row: Row) -> float | str | None:
        return quantity.average(row.runs)

    return figure


FIGURES: dict[str, Figure] = {**_of(*_FIRST), **TESTS, **_of(*_NEXT)}
"""Quantities in a fixed order, because programs may count columns."""
_KNOWN = {*FIGURES, *(one.key for one in _AHEAD)}
LATER = _of(*(one for one in CATALOGUE if one.of_schemes and one.key not in _KNOWN)) | ENERGY.figures() | LATER_TESTS
"""What was declared since: columns that stand after all others."""


Value = Callable[[Submission, Cell, Row], Any]


def _all(figures: Mapping[str, Figure]) -> dict[str, Value]:
    return {name: _in_columns(of) for name, of in figures.items()}


def _in_columns(of: Figure) -> Value:
    return lambda _submission, _cell, row: of(row)


COLUMNS: dict[str, Value] = {
    "study": lambda submission, _cell, _row: submission.plan.study,
    "site": lambda submission, _cell, _row: submission.plan.site,
    "cell": lambda _submission, cell, _row: json.dumps(cell.values, sort_keys=True, ensure_ascii=False),
    "scheme": lambda _submission, _cell, row: row.scheme,
    "runs": lambda _submission, _cell, row: len(row.runs),
    "completed": lambda _submission, _cell, row: row.completed,
    "model_flops_per_rank": lambda _submission, _cell, row: row.model_flops_per_rank,
    "samples_per_s": lambda _submission, _cell, row: row.samples_per_s,
    "tokens_per_s": lambda _submission, _cell, row: row.tokens_per_s,
    **_all(SPEED.figures()),
    "wire_over_message": lambda _submission, _cell, row: row.wire_over_message,
    "loss_valid": lambda _submission, _cell, row: row.loss_valid,
    **_all(LOSS.figures()),
    "loss_margin": lambda _submission, _cell, row: row.loss_margin,
    "verdict": lambda _submission, _cell, row: row.verdict,
    **_all(STEP_TIME.figures()),
    **_all(LOSS_IN_TIME.figures()),
    "speed": lambda _submission, _cell, row: row.speed_shown,
    "loss": lambda _submission, _cell, row: row.loss_shown,
    "loss_in_time": lambda _submission, _cell, row: row.loss_in_time.shown if row.loss_in_time else None,
    **_all(FIGURES),
    "kind": lambda _submission, _cell, row: row.kind.name.lower(),
}
"""Name of each column, and a function that finds its value. The order is fixed, because programs may count columns."""

BESIDE: dict[str, Callable[[Front, Weakened, Row], Any]] = {
    "beaten_by": lambda front, _weak, row: json.dumps(front.beaten_by(row.scheme), ensure_ascii=False),
    "weaknesses": lambda _front, weak, row: " ".join(weak.names(row.scheme)),
}
"""The same for values that are found once for all schemes of a cell. They stand after the others."""


def write(sections: Sequence[Section]) -> str:
    """Write a row for each scheme and cell."""
    return write_csv([[*COLUMNS, *BESIDE, *LATER], *_rows(sections)])


def _rows(sections: Sequence[Section]) -> Iterator[list[Any]]:
    for submission, cells in sections:
        for cell in cells:
            rivals, weak = front(cell), weakened(cell)
            for row in cell.rows:
                own = [value(submission, cell, row) for value in COLUMNS.values()]
                own += [value(rivals, weak, row) for value in BESIDE.values()]
                yield [*own, *(value(row) for value in LATER.values())]
