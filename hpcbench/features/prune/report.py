"""Table of sparse weights: zeros per layer, bytes per step, and loss."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import Submission
from hpcbench.features.prune import events
from hpcbench.present.document import Field, Table, tabulate
from hpcbench.present.notation import name
from hpcbench.report.columns import SCHEME_NAME, make_columns
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.measures import Measures
from hpcbench.report.quantities import BYTES, PERCENT, Quantity
from hpcbench.report.quantities.speed import LOSS_TRAIN, LOSS_VALID

ZEROS = Quantity(
    key="zero_weights",
    head="zeros",
    label="weights kept at zero",
    unit="1",
    meaning="Weights that are kept at zero after the last step, as a fraction of the weights that can be zero",
    scale=PERCENT,
    run=lambda run: sparse.part if (sparse := run.extract(read_sparsity)) else None,
    over_steps="last step",
    table="sparsity",
)
MESSAGES = Quantity(
    key="sparse_message_bytes",
    head="sent ({unit})",
    unit="B",
    meaning="Bytes of all ranks per step before the codec, for runs with sparse weights",
    scale=BYTES,
    run=lambda run: run.message_bytes / run.steps if run.extract(read_sparsity) and run.steps else None,
    over_steps="mean of the steps",
    better="lower",
    table="sparsity",
)
WIRES = replace(
    MESSAGES,
    key="sparse_wire_bytes",
    head="on the wire ({unit})",
    meaning="Bytes of all ranks per step after the codec, for runs with sparse weights",
    run=lambda run: _count_wire_bytes(run),
)
SPARSE_WEIGHTS = (ZEROS, MESSAGES, WIRES)

_LARGEST = 1 << 62


@dataclass(frozen=True)
class ParameterZeros:
    """Zeros of one parameter."""

    name: str
    weights: int
    zeros: int


@dataclass(frozen=True)
class ParameterSparsity:
    """Zeros of the prunable parameters of a run (at least one parameter)."""

    pattern: str
    parts: tuple[ParameterZeros, ...]

    @property
    def part(self) -> float:
        """Fraction of zeros among the prunable weights."""
        return sum(part.zeros for part in self.parts) / sum(part.weights for part in self.parts)

    def by_layer(self) -> dict[str, float]:
        """Return the fraction of zeros of each layer, keyed by layer name."""
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for part in self.parts:
            layer = ".".join(part.name.split(".")[:2])
            sums[layer][0] += part.zeros
            sums[layer][1] += part.weights
        return {layer: zeros / weights for layer, (zeros, weights) in sums.items()}


def read_sparsity(log: RunLog) -> ParameterSparsity | None:
    """Read the ``sparsity`` event of a log. Return None if the event is missing or contains impossible values."""
    event = log.read_event(events.Sparsity)
    parameters = []
    for row in event.parts or ():
        if row.part is None or row.weights is None or row.zeros is None:
            return None
        if not 0 <= row.zeros <= row.weights < _LARGEST or not row.weights:
            return None
        parameters.append(ParameterZeros(row.part, row.weights, row.zeros))
    return ParameterSparsity(event.pattern or "", tuple(parameters)) if parameters else None


def _count_wire_bytes(run: Measures) -> float | None:
    """Return the number of bytes per step after encoding."""
    return (
        run.wire_bytes / run.steps if run.extract(read_sparsity) and run.steps and run.wire_bytes != "unknown" else None
    )


_MOST = 32
"""Maximum number of listed layers."""


def tabulate_zeros(submission: Submission, cell: Cell) -> Table | None:
    """Tabulate zeros, bytes per step and losses of each scheme. Return None if no run has sparse weights."""
    if not any(run.extract(read_sparsity) for run in cell.runs):
        return None
    fields: list[Field[SchemeRow]] = [SCHEME_NAME]
    fields += make_columns([*SPARSE_WEIGHTS, LOSS_TRAIN, LOSS_VALID], cell.rows)
    title = "Sparse weights: zeros, bytes of a step, and loss"
    return tabulate("sparsity", title, cell.rows, fields, notes=list(_describe_layers(cell)))


def _describe_layers(cell: Cell) -> Iterator[str]:
    """Yield the percentages of zeros per layer in the first run of each scheme."""
    for row in cell.rows:
        sparse = next((sparse_of_run for run in row.counted if (sparse_of_run := run.extract(read_sparsity))), None)
        if sparse is not None:
            layers = [f"{layer} {100 * part:.1f}" for layer, part in list(sparse.by_layer().items())[:_MOST]]
            yield f"{name(row.scheme).shown}, pattern {sparse.pattern}, % of zeros: {'; '.join(layers)}."
