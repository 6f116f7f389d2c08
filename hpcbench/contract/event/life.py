"""Events about the beginning, continuation and end of a run."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """The beginning of the run. Lines before this event in the log belong to an earlier attempt."""

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
    """How many times the job has started the run."""
    resumed_from: int | None
    """Step of the checkpoint that the run continues from, or None if it begins with its first step."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Event):
    """The loss on text that is not used for training."""

    NAME: ClassVar[str] = "evaluation"
    step: int | None = None
    """Step after which the loss was computed."""
    split: str | None
    """Split of the data that was evaluated."""
    loss: float | None
    tokens: int | None = None
    """Number of tokens over which the loss is averaged."""


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(Event):
    """A checkpoint that was written to disk."""

    NAME: ClassVar[str] = "checkpoint"
    step: int | None
    bytes: int | None
    """Size of the checkpoint, summed over the ranks."""
    seconds: float | None
    """Seconds to write the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class CheckpointDamaged(Event):
    """A checkpoint that cannot be used."""

    NAME: ClassVar[str] = "checkpoint_damaged"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class CheckpointCarried(Event):
    """A checkpoint from which the run continues, although it was written with a different layout."""

    NAME: ClassVar[str] = "checkpoint_carried"
    reason: str | None
    """Differences between the layouts of the run and the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """The end of the run, with its state. Runs that are killed do not write this event."""

    NAME: ClassVar[str] = "end"
    time: str | None = None
    """Time of the event in UTC, ISO 8601."""
    state: str | None
    """``completed``, ``nan``, ``failed`` or ``stopped``."""
    steps: int | None
    """Number of completed steps."""
    seconds: float | None = None
    """Seconds from the preparation of the first step to the end of the run."""
    reason: str | None = None
    """Reason why the run ended in this state. The text is empty if the state needs no explanation."""
