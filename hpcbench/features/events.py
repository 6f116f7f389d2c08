"""The events that features add to a run's log."""

from hpcbench.contract.event.base import Event
from hpcbench.features.energy.events import Energy
from hpcbench.features.prune.events import Sparsity

EVENTS: tuple[type[Event], ...] = (Energy, Sparsity)
