"""CSV reports: one row per scheme and cell, with unrounded values in base units (s, B, FLOP/s).

Wire bytes are ``unknown`` if the MPI library itself may have compressed data. The column order is fixed, because
programs may rely on column positions. New columns are appended.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hpcbench.features.energy.report.table import AGAINST_BASELINE as ENERGY
from hpcbench.present.records import write_csv
from hpcbench.report.build import Section
from hpcbench.report.columns import LATER_TESTS, LOSS, LOSS_IN_TIME, SPEED, STEP_TIME, TESTS, Figure, follow
from hpcbench.report.front import compute_front
from hpcbench.report.quantities import Quantity, resources, speed, traffic
from hpcbench.report.quantities.catalogue import CATALOGUE
from hpcbench.report.weaknesses import find_weaknesses

_MEASURED = (
    *(speed.HARDWARE_FLOPS, speed.UNLABELLED_FLOPS, speed.MFU, speed.HFU, speed.TOKENS_EACH),
    *(traffic.COMPUTE, traffic.EXPOSED, traffic.HIDDEN, traffic.ENCODE, traffic.DECODE, traffic.TRANSFER),
    *traffic.WIRES,
    *(resources.DEVICE, resources.RESERVED, resources.HOST_RANK, resources.HOST),
    *(speed.SKIPPED, speed.NAN_STEPS),
)


def _average(*quantities: Quantity) -> dict[str, Figure]:
    def declare(quantity: Quantity) -> Figure:
        return lambda row: quantity.average(row.runs)

    return {quantity.key: declare(quantity) for quantity in quantities}


def _read(*names: str) -> dict[str, Figure]:
    return {name: follow(name) for name in names}


FIGURES: dict[str, Figure] = {**_average(*_MEASURED), **TESTS, **_average(traffic.CODED, *traffic.CODEDS)}
"""Quantities that the JSON document also contains."""
COLUMNS: dict[str, Figure] = {
    "scheme": follow("scheme"),
    "runs": lambda row: len(row.runs),
    **_read("completed", "model_flops_per_rank", "samples_per_s", "tokens_per_s"),
    **SPEED.figures(),
    **_read("wire_over_message", "loss_valid"),
    **LOSS.figures(),
    **_read("loss_margin", "verdict"),
    **STEP_TIME.figures(),
    **LOSS_IN_TIME.figures(),
    "speed": follow("speed.shown"),
    "loss": follow("loss.shown"),
    "loss_in_time": follow("loss_in_time.shown"),
    **FIGURES,
    "kind": lambda row: row.kind.name.lower(),
}
"""Functions that compute a scheme's values, by column name."""
LATER: dict[str, Figure] = {
    **_average(*(quantity for quantity in CATALOGUE if quantity.of_schemes and quantity.key not in COLUMNS)),
    **ENERGY.figures(),
    **LATER_TESTS,
}
"""Columns that were added later and follow all others."""


def write(sections: Sequence[Section]) -> str:
    """Write one row per scheme and cell."""
    heads = ["study", "site", "cell", *COLUMNS, "beaten_by", "weaknesses", *LATER]
    return write_csv([heads, *_rows(sections)])


def _rows(sections: Sequence[Section]) -> Iterator[list[Any]]:
    for submission, cells in sections:
        for cell in cells:
            pareto, weak = compute_front(cell), find_weaknesses(cell)
            values = json.dumps(cell.values, sort_keys=True, ensure_ascii=False)
            for row in cell.rows:
                yield [
                    *(submission.plan.study, submission.plan.site, values),
                    *(read(row) for read in COLUMNS.values()),
                    json.dumps(pareto.beaten_by(row.scheme), ensure_ascii=False),
                    " ".join(weak.names(row.scheme)),
                    *(read(row) for read in LATER.values()),
                ]
