"""Layers with experts: how evenly tokens are spread over them, what is dropped, and what moving them takes."""

from collections.abc import Iterator
from dataclasses import replace

from hpcbench.collect.submission import Submission
from hpcbench.present.document import Field, Table, tabulate
from hpcbench.present.notation import name
from hpcbench.report.columns import columns, scheme
from hpcbench.report.compare import Cell, Row
from hpcbench.report.expert_layers import experts
from hpcbench.report.measures import Measures
from hpcbench.report.quantities import COUNT, NUMBER, PERCENT, SECONDS, Quantity

IMBALANCE = Quantity(
    key="expert_imbalance",
    head="most/mean",
    label="tokens of the fullest expert over the mean",
    unit="1",
    meaning="Tokens of the expert that got the most over the mean of its layer's experts, a mean over the layers",
    scale=NUMBER,
    run=lambda run: found.imbalance if (found := run.said(experts)) else None,
    over_steps="mean of the steps",
    better="lower",
    table="experts",
)
DROPPED = replace(
    IMBALANCE,
    key="dropped_part",
    head="dropped",
    label="dropped tokens",
    meaning="Choices of tokens that an expert had no place for, as a part of all choices",
    scale=PERCENT,
    run=lambda run: found.dropped_part if (found := run.said(experts)) else None,
)
UNUSED = replace(
    IMBALANCE,
    key="unused_experts",
    head="unused",
    label="",
    meaning="Experts that no token chose in the counted steps, of all layers together",
    scale=COUNT,
    run=lambda run: found.unused if (found := run.said(experts)) else None,
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
    run=lambda run: _seconds(run, "exposed_s"),
    group=1,
)
ALL_TO_ALL_HIDDEN = replace(
    ALL_TO_ALL_EXPOSED,
    key="all_to_all_hidden_s",
    head="hidden ({unit})",
    label="",
    meaning="Time in which tokens moved to experts and back while the rank computed",
    run=lambda run: _seconds(run, "hidden_s"),
    better="",
)
EXPERTS = (IMBALANCE, DROPPED, UNUSED, ALL_TO_ALL_EXPOSED, ALL_TO_ALL_HIDDEN)


def _seconds(run: Measures, part: str) -> float | None:
    """Seconds of the traffic between experts, a step and rank."""
    found = next((one for one in run.dimensions if one.dimension == "EP"), None)
    seconds: float | None = getattr(found, part, None)
    return seconds


_MOST = 16
"""Layers and experts whose counts are told one by one."""


def table(submission: Submission, cell: Cell) -> Table | None:
    """Balance, drops and all-to-all of each scheme; None where no run has experts."""
    if not any(run.said(experts) for run in cell.runs):
        return None
    times = (ALL_TO_ALL_EXPOSED, ALL_TO_ALL_HIDDEN)
    unit = ALL_TO_ALL_EXPOSED.unit_of(one.over(row.runs) for one in times for row in cell.rows)
    made: list[Field[Row]] = [scheme()]
    for one in EXPERTS:
        made += columns([one], cell.rows, unit=unit if one in times else None)
    title = "Experts: balance, drops, and all-to-all a step and rank"
    return tabulate("experts", title, cell.rows, made, notes=list(_counts(cell)))


def _counts(cell: Cell) -> Iterator[str]:
    """Tokens of each expert in the first run of each scheme, as parts of the layer's."""
    for row in cell.rows:
        found = next((own for run in row.counted if (own := run.said(experts))), None)
        if found is None or len(found.layers) * len(found.layers[0].tokens) > _MOST * _MOST:
            continue
        layers = [
            f"layer {layer.number}: " + " ".join(f"{100 * count / sum(layer.tokens):.0f}" for count in layer.tokens)
            for layer in found.layers[:_MOST]
        ]
        yield f"{name(row.scheme).shown}, % of the choices by expert: {'; '.join(layers)}."
