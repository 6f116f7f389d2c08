"""Worker that trains pipelines with lazy error propagation, and prints a JSON line for each case and each fault.

Each line compares the messages of a rank with a plain model of the recursion, which receives only the gradients before
they are sent.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI
from planting import Patch, list_faults
from runs import run_of
from shared_text import corpus
from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Train
from hpcbench.parallel.boundary_errors import BoundaryErrors
from hpcbench.parallel.pipeline import Pipeline
from hpcbench.predict.volume import count_step_bytes
from hpcbench.train.precision import LossScale
from hpcbench.train.streaming import StreamTrainer
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CODEC = "int4:32"
Values = np.ndarray[Any, Any]


def make_run(layout: Layout, *, feedback: bool = True, schedule: str = "1f1b", precision: str = "fp32") -> Run:
    run = run_of("neox", layout, precision=precision)
    rule = Rule(dimension="PP", phase="BACKWARD", codec=CODEC, feedback=feedback)
    scheme = NamedScheme(name="lazy", algorithm="two-shot", default="none", rules=[rule])
    train = run.train.changed(global_batch=8, micro_batch=2, steps=6 if precision == "fp16" else 3, schedule=schedule)
    return run.changed(scheme=scheme, train=train, model=run.model.changed(layers=4))


CASES = {
    "1f1b": make_run(Layout(pp=2)),
    "gpipe": make_run(Layout(pp=2), schedule="gpipe"),
    "interleaved": make_run(Layout(pp=2, chunks=2), schedule="interleaved"),
    "pipedream": make_run(Layout(pp=2), schedule="pipedream"),
    "fp16": make_run(Layout(pp=2), precision="fp16"),
}


@dataclass
class Recorded:
    """Gradients of a rank in the order in which they are sent, and received gradients."""

    step: int = 0
    sent: list[tuple[int, int, Values]] = field(default_factory=list)
    """Step, boundary and values of each gradient, before its error is added."""
    received: list[tuple[int, int, Values]] = field(default_factory=list)
    """Step, boundary and decoded values."""


@contextmanager
def record() -> Iterator[Recorded]:
    """Record the gradients of all messages to previous stages."""
    recorded, send, receive = Recorded(), Pipeline._send, Pipeline._receive

    def keep_sent(self: Pipeline, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        if not forward:
            recorded.sent.append((recorded.step, boundary, x.detach().float().numpy().flatten()))
        send(self, x, i, boundary, forward=forward)

    def keep_received(self: Pipeline, shape: tuple[int, ...], i: int, boundary: int, *, forward: bool) -> Tensor:
        values = receive(self, shape, i, boundary, forward=forward)
        if not forward:
            recorded.received.append((recorded.step, boundary, values.detach().float().numpy().flatten()))
        return values

    with patch.object(Pipeline, "_send", keep_sent), patch.object(Pipeline, "_receive", keep_received):
        yield recorded


def scale_of(cls: type[LossScale], train: Train) -> LossScale:
    """Return a loss scale that doubles after two steps without overflow."""
    return cls(2.0**10, window=2, hysteresis=1) if train.precision == "fp16" else cls(1.0, window=0)


def check(name: str, fault: str | None) -> None:
    """Train, and print the differences between the messages and the model of the recursion."""
    run = CASES[name]
    kind = StreamTrainer if run.train.schedule == "pipedream" else Trainer
    with patch.object(LossScale, "of", classmethod(scale_of)):
        trainer = kind(run, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=run.train.overlap), corpus())
    steps, scales, skipped = run.train.steps, [], []
    with record() as recorded, FAULTS[fault]() if fault else nullcontext():
        for step in range(steps):
            recorded.step = step
            result = trainer.step(step)
            scales.append(result.loss_scale)
            skipped.append(result.skipped)
    counters = {" ".join(channel.traffic): channel.counters for channel in trainer.policy.channels}
    counted = counters["PP BACKWARD GRAD"]
    predicted = count_step_bytes(run.model, run.train, run.layout, WORLD.rank, updates=1)
    everyone = WORLD.gather(
        {
            "recorded": recorded,
            "errors": {int(key): values.double().numpy() for key, values in trainer.pipeline.errors.save().items()},
            "scale": trainer.state()["loss_scale"]["value"],
            "counted": [counted.message_bytes, counted.wire_bytes],
            "predicted": steps * predicted.get(("PP", "BACKWARD", "GRAD"), 0),
            "held": trainer.held_bytes().get("host residuals", 0),
        }
    )
    if everyone is None:
        return
    for rank, sender in enumerate(everyone):
        if not (sent := sender["recorded"].sent):
            continue
        each, dtype = len(sent[0][2]), np.float16 if run.train.precision == "fp16" else np.float32
        answer = {
            **{key: sender[key] for key in ("counted", "predicted", "held")},
            "coded": len(sent) * get_codec(CODEC).wire_bytes(each, np.dtype(dtype)),
            "elements": each,
            "scales": len(set(scales)),
            "skipped": sum(skipped),
            **compare(sender, everyone[1 - rank], scales, skipped),
        }
        print(json.dumps({"case": name, "fault": fault, "rank": rank, **answer}), flush=True)


def compare(sender: Any, receiver: Any, scales: list[float], skipped: list[bool]) -> dict[str, Any]:
    """Replay the recursion: each message is the encoded sum of a gradient and the error of the previous message.

    Return the number of messages whose decoded bits differ from the model, the number of boundaries, and the largest
    relative difference between all gradients and all messages plus the final error. The relative difference is computed
    in fp64, without the loss scale.
    """
    codec, wrong = get_codec(CODEC), 0
    errors: dict[int, Values] = {}
    gap: dict[int, Values] = {}
    size: dict[int, float] = {}
    arrived: dict[int, list[Values]] = {}
    for _, boundary, values in receiver["recorded"].received:
        arrived.setdefault(boundary, []).append(values)
    for step, boundary, gradient in sender["recorded"].sent:
        decoded = arrived[boundary].pop(0)
        if skipped[step]:  # errors are discarded with the gradients
            errors, gap, size = {}, {}, {}
            continue
        corrected = gradient + errors.get(boundary, np.zeros_like(gradient))
        wire, expected = np.empty(codec.wire_bytes(len(corrected), corrected.dtype), np.uint8), np.empty_like(corrected)
        codec.decode(wire[: codec.encode(corrected, wire)], expected)
        wrong += not np.array_equal(decoded, expected)
        errors[boundary] = corrected - decoded
        gap[boundary] = gap.get(boundary, 0) + (gradient.astype(np.float64) - decoded) / scales[step]
        size[boundary] = size.get(boundary, 0) + float(np.linalg.norm(gradient)) / scales[step]
    left = {boundary: values / sender["scale"] for boundary, values in sender["errors"].items()}
    off = [float(np.linalg.norm(gap[key] - left.get(key, 0))) / size[key] for key in gap]
    return {"wrong": wrong, "telescoped": max(off), "boundaries": len(gap)}


# ---------------------------------------------------------------- planted faults


def error_added_twice() -> Patch:
    """The error of the previous micro-batch is added twice."""
    of = BoundaryErrors.of

    def faulty(self: BoundaryErrors, boundary: int, elements: int) -> Feedback | None:
        error = of(self, boundary, elements)
        if error is not None:
            error.sent *= 2
        return error

    return patch.object(BoundaryErrors, "of", faulty)


def one_error_for_all_boundaries() -> Patch:
    """A rank with several chunks adds the error of one boundary to the gradients of another."""
    of = BoundaryErrors.of
    return patch.object(BoundaryErrors, "of", lambda self, boundary, elements: of(self, 0, elements))


def error_lost_between_steps() -> Patch:
    """The error of a step's last micro-batch is not added to the next step."""
    step = Trainer.step

    def faulty(self: Trainer, *arguments: Any) -> Any:
        self.pipeline.errors.forget()
        return step(self, *arguments)

    return patch.object(Trainer, "step", faulty)


def error_not_scaled() -> Patch:
    """The error keeps the previous loss scale."""
    return patch.object(BoundaryErrors, "scale", lambda self, factor: None)


FAULTS = list_faults(error_added_twice, one_error_for_all_boundaries, error_lost_between_steps, error_not_scaled)
FAULTY = {
    "error_added_twice": "1f1b",
    "one_error_for_all_boundaries": "interleaved",
    "error_lost_between_steps": "1f1b",
    "error_not_scaled": "fp16",
}


if __name__ == "__main__":
    for case in CASES:
        check(case, None)
    for planted, case in FAULTY.items():
        check(case, planted)
