"""Log events of the features."""

from hpcbench.contract.event.base import Event
from hpcbench.features.effects.events import CodecEffectsMeasured
from hpcbench.features.energy.events import Energy
from hpcbench.features.messages.events import MessagesKept
from hpcbench.features.network.events import NetworkBytes
from hpcbench.features.prune.events import Sparsity
from hpcbench.features.trace.events import TraceWritten

EVENTS: tuple[type[Event], ...] = (TraceWritten, MessagesKept, CodecEffectsMeasured, Energy, NetworkBytes, Sparsity)
