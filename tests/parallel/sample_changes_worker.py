"""Worker that trains pipelines whose messages are per-sample changes of activations, and prints JSON lines.

For each case and fault, a line compares the messages of a rank with a plain model of the recursion, which receives only
the activations before they are sent.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI
from planting import Patch, list_faults
from runs import run_of
from shared_text import corpus
from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.parallel.pipeline import Pipeline
from hpcbench.parallel.sample_changes import SampleChanges
from hpcbench.predict.volume import count_step_bytes
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CODEC = get_codec("int4:32")
BATCH, SAMPLES, STEPS = 4, 8, 6
"""Each sample is seen in three epochs of two steps."""
Values = np.ndarray[Any, Any]


def make_run(layout: Layout, *, limit: int = SAMPLES, schedule: str = "1f1b", precision: str = "fp32") -> Run:
    run = run_of("neox", layout, precision=precision)
    rule = Rule(dimension="PP", phase="FORWARD", codec=CODEC.name, sample_changes=limit)
    scheme = NamedScheme(name="changes", algorithm="two-shot", default="none", rules=[rule])
    train = run.train.changed(
        global_batch=BATCH, micro_batch=2, steps=STEPS, schedule=schedule, eval_samples=4, lr=1e-4
    )
    data = run.data.changed(samples=SAMPLES)
    return run.changed(scheme=scheme, train=train, data=data, model=run.model.changed(layers=4))


CASES = {
    "1f1b": make_run(Layout(pp=2)),
    "interleaved": make_run(Layout(pp=2, chunks=2), schedule="interleaved"),
    "limited": make_run(Layout(pp=2), limit=3),
    "bf16": make_run(Layout(pp=2), precision="bf16"),
}


@dataclass
class Recorded:
    """Activations of a rank in training: step, boundary, numbers of the samples, and values [b, s, h]."""

    step: int = 0
    sent: list[tuple[int, int, Sequence[int], Values]] = field(default_factory=list)
    received: list[tuple[int, int, Sequence[int], Values]] = field(default_factory=list)


@contextmanager
def record() -> Iterator[Recorded]:
    """Record the activations of all messages."""
    recorded, send, receive = Recorded(), Pipeline._send, Pipeline._receive

    def numpy(x: Tensor) -> Values:
        return x.detach().float().numpy().copy()

    def keep_sent(self: Pipeline, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        if forward and torch.is_grad_enabled():
            recorded.sent.append((recorded.step, boundary, self._samples[i], numpy(x)))
        send(self, x, i, boundary, forward=forward)

    def keep_received(self: Pipeline, shape: tuple[int, ...], i: int, boundary: int, *, forward: bool) -> Tensor:
        values = receive(self, shape, i, boundary, forward=forward)
        if forward and torch.is_grad_enabled():
            recorded.received.append((recorded.step, boundary, self._samples[i], numpy(values)))
        return values

    with patch.object(Pipeline, "_send", keep_sent), patch.object(Pipeline, "_receive", keep_received):
        yield recorded


def check(name: str, fault: str | None) -> None:
    """Train, and print the differences between the messages and the model of the recursion."""
    run = CASES[name]
    trainer = Trainer(run, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=run.train.overlap), corpus())
    with record() as recorded, FAULTS[fault]() if fault else nullcontext():
        for step in range(STEPS):
            recorded.step = step
            trainer.step(step)
        counted = next(c for c in trainer.policy.channels if c.traffic == ("PP", "FORWARD", "ACT")).counters
        bytes_of_training = [counted.message_bytes, counted.wire_bytes]
        trainer.evaluate()
    predicted = count_step_bytes(run.model, run.train, run.layout, WORLD.rank, updates=1)
    everyone = WORLD.gather(
        {
            "recorded": recorded,
            "kept": {key: values.numpy() for key, values in trainer.pipeline.changes.save().items()},
            "counted": bytes_of_training,
            "predicted": STEPS * predicted.get(("PP", "FORWARD", "ACT"), 0),
            "held": trainer.held_bytes().get("host residuals", 0),
        }
    )
    for rank, sender in enumerate(everyone or []):
        if sent := sender["recorded"].sent:
            values = sent[0][3]
            answer = {
                **{key: sender[key] for key in ("counted", "predicted", "held")},
                "coded": len(sent) * CODEC.wire_bytes(values.size, np.dtype(np.float32)),
                "activation": values[0].nbytes,
                **compare(sender, everyone[1 - rank], run.scheme.rules[0].sample_changes),
            }
            print(json.dumps({"case": name, "fault": fault, "rank": rank, **answer}), flush=True)


def compare(sender: Any, receiver: Any, limit: int) -> dict[str, Any]:
    """Replay the recursion: a message is the encoded difference from the last decoded activation of the sample.

    Return the number of messages whose received bits differ from the model, the number of kept activations that differ
    between both ranks, and the relative error of the received activations in each epoch, in fp64.
    """
    model: dict[tuple[int, int], Values] = {}
    arrived: dict[int, list[Any]] = {}
    for item in receiver["recorded"].received:
        arrived.setdefault(item[1], []).append(item)
    wrong, errors, sizes = 0, [0.0] * 3, [0.0] * 3
    for step, boundary, samples, activation in sender["recorded"].sent:
        _, _, theirs, received = arrived[boundary].pop(0)
        assert tuple(theirs) == tuple(samples)
        before = np.stack([model.get((boundary, sample), np.zeros_like(activation[0])) for sample in samples])
        change = (activation - before).reshape(-1)
        wire, decoded = np.empty(CODEC.wire_bytes(change.size, change.dtype), np.uint8), np.empty_like(change)
        CODEC.decode(wire[: CODEC.encode(change, wire)], decoded)
        after = before + decoded.reshape(before.shape)
        wrong += not np.array_equal(after, received)
        for sample, values in zip(samples, after, strict=True):
            if (boundary, sample) in model or sum(key[0] == boundary for key in model) < limit:
                model[boundary, sample] = values
        epoch = step // (SAMPLES // BATCH)
        errors[epoch] += float(np.square(received.astype(np.float64) - activation).sum())
        sizes[epoch] += float(np.square(activation.astype(np.float64)).sum())
    here = {key.removeprefix("to "): values for key, values in sender["kept"].items() if key.startswith("to ")}
    there = {key.removeprefix("from "): values for key, values in receiver["kept"].items() if key.startswith("from ")}
    differ = len(here.keys() ^ there.keys())
    differ += sum(not np.array_equal(here[key], there[key]) for key in here.keys() & there.keys())
    epochs = [float(np.sqrt(error / size)) for error, size in zip(errors, sizes, strict=True)]
    return {"wrong": wrong, "differ": differ, "kept": len(here), "expected": len(model), "errors": epochs}


# ---------------------------------------------------------------- planted faults


def sender_not_updated() -> Patch:
    """The sender does not keep the activations that it sent."""
    return patch.object(SampleChanges, "finish", lambda self: self._sent.clear())


def exact_values_kept() -> Patch:
    """The sender keeps the exact activations instead of the decoded activations."""
    subtract = SampleChanges.subtract

    def faulty(self: SampleChanges, x: Tensor, boundary: int, samples: Sequence[int]) -> Any:
        buffer = subtract(self, x, boundary, samples)
        side, samples, before, _ = self._sent.pop()
        self._sent.append((side, samples, before, buffer.copy()))
        return buffer

    return patch.object(SampleChanges, "subtract", faulty)


def change_of_another_sample() -> Patch:
    """The receiver adds a change to the activation of the next sample in the micro-batch."""
    before = SampleChanges._before

    def faulty(self: SampleChanges, side: str, samples: Sequence[int], like: Tensor) -> Tensor:
        return before(self, side, samples[::-1] if side.startswith("from") else samples, like)

    return patch.object(SampleChanges, "_before", faulty)


FAULTS = list_faults(sender_not_updated, exact_values_kept, change_of_another_sample)


if __name__ == "__main__":
    for case in CASES:
        check(case, None)
    for planted in FAULTS:
        check("1f1b", planted)
