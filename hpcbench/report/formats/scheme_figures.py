"""The figures of a scheme that programs read, by name, unrounded and in base units (s, B, FLOP/s): of JSON and CSV."""

from hpcbench.report.compare import Row
from hpcbench.report.intervals import TESTS, Figure
from hpcbench.report.quantities import CATALOGUE
from hpcbench.report.quantities import resource_quantities as resources
from hpcbench.report.quantities import speed_quantities as speed
from hpcbench.report.quantities import traffic_quantities as traffic
from hpcbench.report.quantities.quantity import Quantity

_AHEAD = (
    *(speed.MODEL_FLOPS, speed.SAMPLES, speed.TOKENS, speed.STEP_SECONDS),
    *(speed.LOSS_VALID, traffic.WIRE),
)
"""What each format holds anyway, beside the differences from the baseline."""
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
        return quantity.over(row.runs)

    return figure


FIGURES: dict[str, Figure] = {**_of(*_FIRST), **TESTS, **_of(*_NEXT)}
"""In an order that stays, since programs may count columns."""
_KNOWN = {*FIGURES, *(one.key for one in _AHEAD)}
LATER = _of(*(one for one in CATALOGUE if one.of_schemes and one.key not in _KNOWN))
"""What was declared since: columns that stand after all others."""
