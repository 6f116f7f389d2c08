"""How a run begins, goes on and ends."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """The run begins. What stands above it in the log is of an attempt before."""

    NAME: ClassVar[str] = "start"
    time: str | None
    """In UTC, ISO 8601."""
    schema: int | None
    """Version of the run file."""
    version: str | None
    """Of hpcbench."""
    study: str | None
    run: str | None
    site: str | None
    repeat: int | None
    pairing: str | None
    cell: dict[str, Any] | None
    """Values of the study's matrix, beside scheme and repeat."""
    scheme: str | None
    attempt: int | None
    """How often the run was started, by its job's count."""
    resumed_from: int | None
    """The step of the checkpoint that it goes on from; None where it begins with its first step."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Event):
    """The loss on text that is not trained on."""

    NAME: ClassVar[str] = "evaluation"
    step: int | None = None
    """The step after which it was taken."""
    split: str | None
    """Which part of the data."""
    loss: float | None
    tokens: int | None = None
    """That it was taken over."""


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(Event):
    """A checkpoint is on the disk."""

    NAME: ClassVar[str] = "checkpoint"
    step: int | None
    bytes: int | None
    """Sum over the ranks."""
    seconds: float | None
    """That writing it took."""


@dataclass(frozen=True, kw_only=True)
class CheckpointDamaged(Event):
    """A checkpoint was found that cannot be used."""

    NAME: ClassVar[str] = "checkpoint_damaged"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class CheckpointCarried(Event):
    """The run goes on from a checkpoint of another layout."""

    NAME: ClassVar[str] = "checkpoint_carried"
    reason: str | None
    """What is not as it was."""


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """The run ends by itself, and says how."""

    NAME: ClassVar[str] = "end"
    time: str | None = None
    """In UTC, ISO 8601."""
    state: str | None
    """``completed``, ``nan``, ``failed`` or ``stopped``."""
    steps: int | None
    """That were taken."""
    seconds: float | None = None
    """From its first step's preparation to here."""
    reason: str | None = None
    """Empty where the state says it all."""
