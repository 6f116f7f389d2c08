"""Quantities of runs with sparse weights: how many are zero, and what their steps send."""

from dataclasses import replace

from hpcbench.report.measures import Measures
from hpcbench.report.quantities import BYTES, PERCENT, Quantity


def _wires(run: Measures) -> float | None:
    """Bytes of a step after the codec."""
    return run.wire_bytes / run.steps if run.sparsity and run.steps and run.wire_bytes != "unknown" else None


ZEROS = Quantity(
    key="zero_weights",
    head="zeros",
    label="weights kept at zero",
    unit="1",
    meaning="Weights that are kept at zero after the last step, as a part of those that can be",
    scale=PERCENT,
    run=lambda run: run.sparsity.part if run.sparsity else None,
    over_steps="last step",
    table="sparsity",
)
MESSAGES = Quantity(
    key="sparse_message_bytes",
    head="sent ({unit})",
    unit="B",
    meaning="Bytes of a step before the codec, of all ranks, where weights are sparse",
    scale=BYTES,
    run=lambda run: run.message_bytes / run.steps if run.sparsity and run.steps else None,
    over_steps="mean of the steps",
    better="lower",
    table="sparsity",
)
WIRES = replace(
    MESSAGES,
    key="sparse_wire_bytes",
    head="on the wire ({unit})",
    meaning="Bytes of a step after the codec, of all ranks, where weights are sparse",
    run=_wires,
)
SPARSITY = (ZEROS, MESSAGES, WIRES)
