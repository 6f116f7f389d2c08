"""The run's log: lines that a person reads and the collector parses without guessing.

A step line is ``step k/N | name value unit | ... |``; the closing bar says that it is whole. Everything else of
interest is an event: one JSON object a line.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TextIO


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Step:
    """What is said of one step; bytes are sums over all ranks."""

    step: int
    steps: int
    loss: float
    seconds: float
    samples_per_s: float
    model_flops_per_rank: float
    hardware_flops_per_rank: float
    lr: float
    gradient_norm: float
    message_bytes: int
    wire_bytes: int
    skipped: int
    loss_scale: float | None = None
    """None where the loss is not scaled."""

    def line(self) -> str:
        """The step's line."""
        scale = "" if self.loss_scale is None else f" | loss-scale {self.loss_scale:.17g}"
        width = len(str(self.steps))
        return (
            f"step {self.step:>{width}}/{self.steps} | loss {self.loss:.6f} | time {self.seconds:.6f} s"
            f" | samples/s {self.samples_per_s:.2f}"
            f" | model {self.model_flops_per_rank / 1e9:.3f} GFLOPS/rank"
            f" | hardware {self.hardware_flops_per_rank / 1e9:.3f} GFLOPS/rank"
            f" | lr {self.lr:.3E} | grad-norm {self.gradient_norm:.4E}"
            f"{scale} | message {self.message_bytes} B | wire {self.wire_bytes} B | skipped {self.skipped} |"
        )


class RunLog:
    """Writes the log of a run.

    Parameters
    ----------
    stream
        Where to; None writes nothing (ranks other than the first).
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def event(self, name: str, **fields: Any) -> None:
        """One JSON line."""
        self._write(json.dumps({"event": name, **fields}))

    def step(self, step: Step) -> None:
        """One step line."""
        self._write(step.line())

    def _write(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()
