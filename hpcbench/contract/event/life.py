"""Events about how a run begins, continues and ends."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """The run begins. Lines above it in the log belong to an earlier attempt."""

    NAME: ClassVar[str] = "start"
    time: str | None
    """Time of the event in UTC, ISO 8601."""
    schema: int | None
    """Version of the run file."""
    version: str | None
    """Version of hpcbench."""
    study: str | None
    run: str | None
    site: str | None
    repeat: int | None
    pairing: str | None
    cell: dict[str, Any] | None
    """Values of the study's matrix, apart from scheme and repeat."""
    scheme: str | None
    attempt: int | None
    """How often the job has started the run."""
    resumed_from: int | None
    """The step of the checkpoint that the run continues from; None if it begins with its first step."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Event):
    """The loss on text that is not trained on."""

    NAME: ClassVar[str] = "evaluation"
    step: int | None = None
    """The step after which the loss was taken."""
    split: str | None
    """The part of the data that was evaluated."""
    loss: float | None
    tokens: int | None = None
    """Number of tokens that the loss is a mean of."""


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(Event):
    """A checkpoint is on the disk."""

    NAME: ClassVar[str] = "checkpoint"
    step: int | None
    bytes: int | None
    """Size of the checkpoint, summed over the ranks."""
    seconds: float | None
    """Seconds that it took to write the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class CheckpointDamaged(Event):
    """A checkpoint was found that cannot be used."""

    NAME: ClassVar[str] = "checkpoint_damaged"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class CheckpointCarried(Event):
    """The run continues from a checkpoint of another layout."""

    NAME: ClassVar[str] = "checkpoint_carried"
    reason: str | None
    """What differs from the layout of the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """The run ends by itself and says how."""

    NAME: ClassVar[str] = "end"
    time: str | None = None
    """Time of the event in UTC, ISO 8601."""
    state: str | None
    """``completed``, ``nan``, ``failed`` or ``stopped``."""
    steps: int | None
    """Number of steps that were taken."""
    seconds: float | None = None
    """Seconds from the preparation of the first step to the end."""
    reason: str | None = None
    """Why the run ended so; empty where the state needs no explanation."""
