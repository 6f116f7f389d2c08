"""How the embedding's gradient of a run travelled: from its ``sparse_gradients`` event."""

from dataclasses import dataclass
from math import isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events


@dataclass(frozen=True)
class SparseGradients:
    """Counts of a run whose embedding's gradient might travel by rows, over all ranks and counted steps."""

    switch_density: float
    density: float
    part: float
    """Reductions that travelled by rows, as a part of all."""
    saved_bytes: float
    """Wire bytes of a step that the whole gradient would have taken beyond what was sent."""


def sparse_gradients(log: RunLog) -> SparseGradients | None:
    """What the log says; None where it says nothing, or not sensibly."""
    said = log.said(events.SparseGradients)
    fields = said.switch_density, said.density, said.reductions, said.by_rows, said.saved_bytes
    first, last = said.from_step, said.to_step
    if None in fields or first is None or last is None:
        return None
    switch, density, reductions, by_rows, saved = (float(each) for each in fields if each is not None)
    sensible = 0 <= by_rows <= reductions and reductions > 0 and 0 <= density <= 1 and switch >= 0 and last >= first
    if not sensible or not all(map(isfinite, (switch, density, saved))):
        return None
    return SparseGradients(switch, density, by_rows / reductions, saved / (last - first + 1))
