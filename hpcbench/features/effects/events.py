"""Log event with the measured effects of codecs."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class CodecEffect(LogObject):
    """Differences between a step with a codec on one kind of traffic and the same step without the codec."""

    traffic: str | None
    """Dimension, phase and kind, followed by the axis on a tensor grid."""
    codec: str | None
    loss: float | None
    """Change of the loss, as a fraction of the loss, or None if it is not finite."""
    update: float | None
    """Norm of the change in the weight update, divided by the norm of the update, or None."""
    descent: float | None
    """First-order estimate of the loss change due to the changed update, as a fraction of the loss, or None."""


@dataclass(frozen=True, kw_only=True)
class CodecEffectsMeasured(Event):
    """Effects of codecs with the weights after a step."""

    NAME: ClassVar[str] = "codec-effects"
    step: int | None
    effects: tuple[CodecEffect, ...] | None
    seconds: float | None
    """Duration of the measurement in seconds."""
