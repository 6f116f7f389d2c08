"""Expert loads (tokens per expert) from a run's log."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events

_LARGEST = 1 << 62


@dataclass(frozen=True)
class LayerLoads:
    """Expert choices of the tokens in one layer, summed over ranks and counted steps."""

    number: int
    tokens: tuple[int, ...]
    """Number of tokens routed to each expert."""
    dropped: int

    @property
    def imbalance(self) -> float:
        """Largest number of tokens of an expert, divided by the mean over the experts."""
        return max(self.tokens) / fmean(self.tokens)


@dataclass(frozen=True)
class ExpertLoads:
    """Loads of a run's expert layers, at least one."""

    layers: tuple[LayerLoads, ...]

    @property
    def dropped_part(self) -> float:
        """Fraction of the choices that were dropped because an expert was full."""
        return sum(layer.dropped for layer in self.layers) / sum(sum(layer.tokens) for layer in self.layers)

    @property
    def imbalance(self) -> float:
        """Mean imbalance over the layers."""
        return fmean(layer.imbalance for layer in self.layers)

    @property
    def unused(self) -> int:
        """Number of experts without any tokens, summed over the layers."""
        return sum(layer.tokens.count(0) for layer in self.layers)


def read_expert_loads(log: RunLog) -> ExpertLoads | None:
    """Return a run's expert loads from the ``experts`` event, or None if the event is missing or invalid."""
    layers = []
    for row in log.read_event(events.ExpertTokens).layers or ():
        if row.layer is None or row.tokens is None or row.dropped is None:
            return None
        tokens = tuple(row.tokens)
        if not _is_valid(tokens, row.dropped):
            return None
        layers.append(LayerLoads(row.layer, tokens, row.dropped))
    return ExpertLoads(tuple(layers)) if layers else None


def _is_valid(tokens: Sequence[int], dropped: int) -> bool:
    return all(0 <= count < _LARGEST for count in tokens) and 0 <= dropped <= sum(tokens) > 0
