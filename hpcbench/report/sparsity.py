"""How sparse the weights of a run became: from its ``sparsity`` event."""

from collections import defaultdict
from dataclasses import dataclass

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events

_LARGEST = 1 << 62


@dataclass(frozen=True)
class Part:
    """Zeros of one parameter."""

    name: str
    weights: int
    zeros: int


@dataclass(frozen=True)
class Sparsity:
    """The parameters of a run that can have zeros, at least one."""

    pattern: str
    parts: tuple[Part, ...]

    @property
    def part(self) -> float:
        """Zeros as a part of the weights that can be zero."""
        return sum(part.zeros for part in self.parts) / sum(part.weights for part in self.parts)

    def by_layer(self) -> dict[str, float]:
        """The same for each layer, by its name in the model."""
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for part in self.parts:
            layer = ".".join(part.name.split(".")[:2])
            sums[layer][0] += part.zeros
            sums[layer][1] += part.weights
        return {layer: zeros / weights for layer, (zeros, weights) in sums.items()}


def sparsity(log: RunLog) -> Sparsity | None:
    """The sparse weights of a run; None where the log does not speak of any, or not sensibly."""
    said = log.said(events.Sparsity)
    found = []
    for row in said.parts or ():
        if row.part is None or row.weights is None or row.zeros is None:
            return None
        if not 0 <= row.zeros <= row.weights < _LARGEST or not row.weights:
            return None
        found.append(Part(row.part, row.weights, row.zeros))
    return Sparsity(said.pattern or "", tuple(found)) if found else None
