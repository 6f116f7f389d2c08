"""Results of a step: on one rank, and on all ranks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """The result of a step, the same on all ranks. Bytes are sums over the ranks."""

    loss: float
    seconds: float
    lr: float
    gradient_norm: float | None
    """Global norm before clipping; None after 1-bit Adam's freeze."""
    message_bytes: int
    wire_bytes: int
    skipped: bool
    loss_scale: float
    """Loss scale of this step; 1 in formats other than fp16."""
    stop: bool
    """Whether some rank was asked to stop."""
    diverged: int | None
    """Number, from 1, of the step for whose loss the run ends here, because it is not finite; None if it does not end.

    It is this step, or an earlier one where no step waits for all ranks.
    """
    kept_choices: int = 0
    """Choices that experts accepted, in all layers."""


@dataclass(frozen=True)
class Timed:
    """One rank's summands of a step: of the mean loss, of the squared norm, and of the traffic."""

    loss: float
    seconds: float
    lr: float
    norm: float | None
    message_bytes: int
    wire_bytes: int
