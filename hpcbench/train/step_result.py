"""Results of a step on one rank and on all ranks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """Result of a step, the same on all ranks. Bytes are summed over the ranks."""

    loss: float
    seconds: float
    lr: float
    gradient_norm: float | None
    """Global gradient norm before clipping, or None after the freeze of 1-bit Adam."""
    message_bytes: int
    wire_bytes: int
    skipped: bool
    loss_scale: float
    """Loss scale of this step, or 1 for dtypes other than fp16."""
    stop: bool
    """Whether any rank was asked to stop."""
    diverged: int | None
    """Number (from 1) of the step whose loss is not finite, if the run ends for this reason, else None.

    The step may be earlier than the current step if steps do not wait for all ranks.
    """
    kept_choices: int = 0
    """Number of choices that experts accepted in all layers."""


@dataclass(frozen=True)
class Timed:
    """Contributions of one rank to the mean loss, the squared gradient norm and the traffic of a step."""

    loss: float
    seconds: float
    lr: float
    norm: float | None
    message_bytes: int
    wire_bytes: int
