"""Report quantities for expert layers: token balance, dropped tokens, and all-to-all time."""

from collections.abc import Iterator
from dataclasses import replace

from hpcbench.collect.submission import Submission
from hpcbench.present.document import Field, Table, tabulate
from hpcbench.present.notation import name
from hpcbench.report.columns import SCHEME_NAME, make_columns
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.expert_layers import read_expert_loads
from hpcbench.report.measures import Measures
from hpcbench.report.quantities import COUNT, NUMBER, PERCENT, SECONDS, Quantity
from hpcbench.report.quantities.traffic import find_dimension

IMBALANCE = Quantity(
    key="expert_imbalance",
    head="most/mean",
    label="tokens of the fullest expert / mean",
    unit="1",
    meaning="Tokens of the fullest expert of a layer divided by the mean of the layer's experts; mean over the layers",
    scale=NUMBER,
    run=lambda run: loads.imbalance if (loads := run.extract(read_expert_loads)) else None,
    over_steps="mean of the steps",
    better="lower",
    table="experts",
)
DROPPED = replace(
    IMBALANCE,
    key="dropped_part",
    head="dropped",
    label="dropped tokens",
    meaning="Choices of an expert that had no capacity left for the token, as a fraction of all choices",
    scale=PERCENT,
    run=lambda run: loads.dropped_part if (loads := run.extract(read_expert_loads)) else None,
)
UNUSED = replace(
    IMBALANCE,
    key="unused_experts",
    head="unused",
    label="",
    meaning="Experts of all layers that no token chose in the counted steps",
    scale=COUNT,
    run=lambda run: loads.unused if (loads := run.extract(read_expert_loads)) else None,
    over_steps="",
)
ALL_TO_ALL_EXPOSED = replace(
    IMBALANCE,
    key="all_to_all_exposed_s",
    head="exposed ({unit})",
    label="waiting for tokens of experts",
    unit="s",
    meaning="Time in which a rank waited for tokens on their way to experts and back",
    scale=SECONDS,
    run=lambda run: _read_seconds(run, "exposed_s"),
    group=1,
)
ALL_TO_ALL_HIDDEN = replace(
    ALL_TO_ALL_EXPOSED,
    key="all_to_all_hidden_s",
    head="hidden ({unit})",
    label="",
    meaning="Time in which tokens moved to experts and back while the rank computed",
    run=lambda run: _read_seconds(run, "hidden_s"),
    better="",
)
EXPERTS = (IMBALANCE, DROPPED, UNUSED, ALL_TO_ALL_EXPOSED, ALL_TO_ALL_HIDDEN)


def _read_seconds(run: Measures, part: str) -> float | None:
    """Return a part of the expert traffic's time, in seconds per step and rank."""
    seconds: float | None = getattr(find_dimension(run, "EP"), part, None)
    return seconds


_MOST = 16
"""Maximum number of layers, and of experts per layer, whose counts are listed."""


def tabulate_experts(submission: Submission, cell: Cell) -> Table | None:
    """Make the table of token balance, dropped tokens and all-to-all time, or return None if no run has experts."""
    if not any(run.extract(read_expert_loads) for run in cell.runs):
        return None
    times = (ALL_TO_ALL_EXPOSED, ALL_TO_ALL_HIDDEN)
    unit = ALL_TO_ALL_EXPOSED.choose_unit(quantity.average(row.runs) for quantity in times for row in cell.rows)
    fields: list[Field[SchemeRow]] = [SCHEME_NAME]
    for quantity in EXPERTS:
        fields += make_columns([quantity], cell.rows, unit=unit if quantity in times else None)
    title = "Experts: balance, drops, and all-to-all per step and rank"
    return tabulate("experts", title, cell.rows, fields, notes=list(_describe_loads(cell)))


def _describe_loads(cell: Cell) -> Iterator[str]:
    """Yield each expert's share of its layer's tokens, for the first run of each scheme."""
    for row in cell.rows:
        loads = next((loads for run in row.counted if (loads := run.extract(read_expert_loads))), None)
        if loads is None or len(loads.layers) * len(loads.layers[0].tokens) > _MOST * _MOST:
            continue
        layers = [
            f"layer {layer.number}: " + " ".join(f"{100 * count / sum(layer.tokens):.0f}" for count in layer.tokens)
            for layer in loads.layers[:_MOST]
        ]
        yield f"{name(row.scheme).shown}, % of the choices by expert: {'; '.join(layers)}."
