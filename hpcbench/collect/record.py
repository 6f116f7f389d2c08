"""What a log is read into: records, each with the line it stands on, and the quantities that a record may hold."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """One step of one run, with the line it stands on. A field that the log lacks is None: nothing is guessed.

    Where a framework prints one line for several steps, the record is of the last of them, and means are over all.
    """

    line: int
    step: int
    steps: int | None = None
    """Steps that the run was to take; None where the log does not say."""
    loss: float | None = None
    """Mean training loss of the step; NaN and infinity are values, not gaps."""
    seconds: float | None = None
    """Wall time of one step, all micro-batches and the optimizer."""
    samples_per_s: float | None = None
    """Sequences a second, all ranks together."""
    tokens_per_s: float | None = None
    """Tokens a second, all ranks together."""
    tokens_per_s_per_rank: float | None = None
    """Tokens a second of one rank (GPU)."""
    model_flops_per_rank: float | None = None
    """FLOP/s that the model needs, recomputation not counted."""
    hardware_flops_per_rank: float | None = None
    """FLOP/s that were executed."""
    unlabelled_flops_per_rank: float | None = None
    """FLOP/s of which the log does not say whether recomputation counts."""
    mfu: float | None = None
    """Model FLOP/s over the chip's peak, as a part of 1, as the log claims it."""
    hfu: float | None = None
    """Hardware FLOP/s over the chip's peak, as a part of 1, as the log claims it."""
    lr: float | None = None
    """Learning rate."""
    gradient_norm: float | None = None
    """Global norm of the gradients before clipping."""
    loss_scale: float | None = None
    """Factor of the loss in fp16."""
    message_bytes: int | None = None
    """Bytes before the codec, summed over all ranks."""
    wire_bytes: int | None = None
    """Bytes after the codec, summed over all ranks."""
    memory_bytes: int | None = None
    """Peak memory of the device of the rank that printed the line."""
    samples: int | None = None
    """Sequences of the step: the global batch."""
    consumed_samples: int | None = None
    """Sequences since the run began."""
    consumed_tokens: int | None = None
    """Tokens since the run began."""
    skipped: int | None = None
    """Steps skipped so far for overflow."""
    nan_steps: int | None = None
    """Steps so far whose loss was no number."""


@dataclass(frozen=True)
class Event:
    """One JSON object of the log. `data` is as it was written: nothing in it has been checked."""

    line: int
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Cut:
    """A line of ours that is not whole; nothing of it is used."""

    line: int
    why: str
