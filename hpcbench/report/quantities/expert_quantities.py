"""Quantities of layers with experts: how many tokens each gets, what is dropped, and what moving them takes."""

from dataclasses import replace

from hpcbench.report.measures import Measures
from hpcbench.report.quantities import COUNT, NUMBER, PERCENT, SECONDS, Quantity

IMBALANCE = Quantity(
    key="expert_imbalance",
    head="most/mean",
    label="tokens of the fullest expert over the mean",
    unit="1",
    meaning="Tokens of the expert that got the most over the mean of its layer's experts, a mean over the layers",
    scale=NUMBER,
    run=lambda run: run.experts.imbalance if run.experts else None,
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
    run=lambda run: run.experts.dropped_part if run.experts else None,
)
UNUSED = replace(
    IMBALANCE,
    key="unused_experts",
    head="unused",
    label="",
    meaning="Experts that no token chose in the counted steps, of all layers together",
    scale=COUNT,
    run=lambda run: run.experts.unused if run.experts else None,
    over_steps="",
)


def _seconds(run: Measures, part: str) -> float | None:
    """Seconds of the traffic between experts, a step and rank."""
    found = next((one for one in run.dimensions if one.dimension == "EP"), None)
    seconds: float | None = getattr(found, part, None)
    return seconds


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
