"""The events that features add to a run's log."""

from hpcbench.contract.event.base import Event
from hpcbench.features.energy.events import Energy

EVENTS: tuple[type[Event], ...] = (Energy,)
