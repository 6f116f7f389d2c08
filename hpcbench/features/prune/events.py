"""Log event with the zeros of sparse weights."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class SparsePart(LogObject):
    """Zeros of one parameter of the model."""

    part: str | None
    """Name of the parameter."""
    weights: int | None
    """Number of weights of the parameter."""
    zeros: int | None
    """Number of weights that the mask keeps at zero."""


@dataclass(frozen=True, kw_only=True)
class Sparsity(Event):
    """Zeros of the weights after the last step."""

    NAME: ClassVar[str] = "sparsity"
    pattern: str | None
    updates: int | None
    """Number of weight updates."""
    parts: tuple[SparsePart, ...] | None
