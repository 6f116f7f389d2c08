"""Tokens of the experts, as a run's log has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events

_LARGEST = 1 << 62


@dataclass(frozen=True)
class Layer:
    """Choices of tokens in one layer, over all ranks and counted steps."""

    number: int
    tokens: tuple[int, ...]
    """By expert."""
    dropped: int

    @property
    def imbalance(self) -> float:
        """The most that an expert got, over the mean."""
        return max(self.tokens) / fmean(self.tokens)


@dataclass(frozen=True)
class Experts:
    """The layers of a run that have experts, at least one."""

    layers: tuple[Layer, ...]

    @property
    def dropped_part(self) -> float:
        """Choices that an expert had no place for, as a part of all."""
        return sum(layer.dropped for layer in self.layers) / sum(sum(layer.tokens) for layer in self.layers)

    @property
    def imbalance(self) -> float:
        """The mean over the layers of the most that an expert got over the mean."""
        return fmean(layer.imbalance for layer in self.layers)

    @property
    def unused(self) -> int:
        """Experts that no token chose, in all layers."""
        return sum(layer.tokens.count(0) for layer in self.layers)


def experts(log: RunLog) -> Experts | None:
    """Return what the experts of a run received, from its ``experts`` event.

    None where the log does not speak of any, or not sensibly.
    """
    found = []
    for row in log.read_event(events.Experts).layers or ():
        if row.layer is None or row.tokens is None or row.dropped is None:
            return None
        tokens = tuple(row.tokens)
        if not _sensible(tokens, row.dropped):
            return None
        found.append(Layer(row.layer, tokens, row.dropped))
    return Experts(tuple(found)) if found else None


def _sensible(tokens: Sequence[int], dropped: int) -> bool:
    return all(0 <= count < _LARGEST for count in tokens) and 0 <= dropped <= sum(tokens) > 0
