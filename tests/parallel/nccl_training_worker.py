"""Worker that trains a small GPT over NCCL on the strict device, and over MPI on the CPU, and prints JSON lines."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import shared_text
import torch
from gpu_training_worker import compile_kernels
from mpi4py import MPI
from runs import SCHEMES, run_of
from strict_training import TrainingDevice, on_strict_device

from hpcbench.comm import planner
from hpcbench.comm.places import DevicePlace, Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.stream_execute import GroupOrder
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.predict import volume
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
SEEDS = (0, 1, 7)
CODEC = "int8:256"
INT8 = NamedScheme(name="int8", algorithm="two-shot", default=CODEC)
KEEPING = NamedScheme(
    name="keeping",
    algorithm="two-shot",
    default="none",
    rules=[Rule(dimension="DP", kind="GRAD", codec=CODEC, feedback=True)],
)


def settings() -> Iterator[tuple[str, Run, int]]:
    """Yield the name, run and number of slices of each case: every layout with the baseline and with int8.

    With several slices, two lanes are used. The prediction of the traffic assumes one slice.
    """
    layouts: dict[str, tuple[Layout, dict[str, Any]]] = {
        "replicas": (Layout(dp=WORLD.size), {"zero": 0}),
        "tensor": (Layout(tp=2, dp=WORLD.size // 2), {"zero": 1, "sequence_parallel": True}),
    }
    if WORLD.size > 2:
        layouts["gradients sharded"] = (Layout(dp=WORLD.size), {"zero": 2})
        layouts["interleaved pipeline"] = (Layout(dp=2, pp=2, chunks=2), {"zero": 1, "schedule": "interleaved"})
    for name, (layout, train) in layouts.items():
        for scheme in (SCHEMES["baseline"], INT8) if WORLD.size > 2 or name == "replicas" else (INT8,):
            yield f"{name}, {scheme.name}", make_run(layout, scheme, **train), 1
    if WORLD.size == 2:
        yield "pipeline, int8", make_run(Layout(pp=2), INT8, zero=0), 1
    else:
        yield "weights sharded, int8", make_run(Layout(dp=WORLD.size), INT8, zero=3), 1
    yield "residuals in slices, keeping", make_run(Layout(dp=WORLD.size), KEEPING, zero=1), 3


def make_run(layout: Layout, scheme: NamedScheme, **train: Any) -> Run:
    base = run_of("neox" if layout.chunks > 1 else "gpt2", layout, precision="fp32")
    train = {"steps": 2, "global_batch": 8, "micro_batch": 1, "overlap": True, **train}
    return base.changed(
        model=base.model.changed(layers=max(2, layout.parts)), scheme=scheme, train=base.train.changed(**train)
    )


def train(run: Run, slices: int, places: Places | None, around: Callable[[], Any]) -> dict[str, Any]:
    """Train for a few steps. Return the results of all steps and this rank's counters by channel."""
    corpus, progress = shared_text.corpus(), Progress(Wait.GIVE_WAY, background=run.train.overlap)
    with around(), patch.object(planner, "_counts", lambda n, topology, asked: [slices]):
        trainer = Trainer(run, WORLD.Dup(), progress, corpus, places)
        results = [trainer.step(k) for k in range(run.train.steps)]
        counted = {" ".join(channel.traffic): channel.counters for channel in trainer.policy.channels}
        counters = {
            name: [c.calls, c.plain_calls, c.message_bytes, c.wire_bytes, c.network_bytes, dict(c.algorithms)]
            for name, c in counted.items()
            if c.calls
        }
        evaluation = trainer.evaluate()
        agree = replicas_agree(trainer)
    state = io.BytesIO()
    torch.save({key: value for key, value in trainer.state().items() if key != "shards"}, state)
    return {
        "losses": [result.loss for result in results],
        "norms": [result.gradient_norm for result in results],
        "bytes": [(result.message_bytes, result.wire_bytes) for result in results],
        "evaluation": evaluation,
        "state": state.getvalue().hex(),
        "counters": counters,
        "agree": agree,
    }


def over_nccl(run: Run, slices: int, seed: int) -> tuple[dict[str, Any], TrainingDevice]:
    """Train over NCCL. Return the results and the device."""
    device = TrainingDevice(WORLD.rank, seed)
    places = Places(device_of=lambda x: device, nccl=device.connect)
    results = train(run, slices, places, lambda: on_strict_device(device))
    return results, device


def predict(run: Run) -> dict[str, int]:
    """Return the message bytes of this rank by channel, computed from the settings."""
    step = volume.count_step_bytes(run.model, run.train, run.layout, WORLD.rank)
    return {" ".join(key): run.train.steps * nbytes for key, nbytes in step.items()}


def main() -> None:
    """Compare each run over NCCL with the same run over MPI."""
    compile_kernels()
    for number, (name, run, slices) in enumerate(settings()):
        expected = train(run, slices, None, nullcontext)
        results, device = over_nccl(run, slices, SEEDS[number % len(SEEDS)])
        sent = {channel: counts[2] for channel, counts in results["counters"].items()}
        tell(
            {
                "setting": name,
                "differs": [key for key in expected if results[key] != expected[key]],
                "agree": results["agree"],
                "losses": results["losses"],
                "sent": sent,
                "predicted": predict(run) if slices == 1 else sent,
                "errors": device.errors[:3],
                "host waits": sorted(device.model.host_waits),
            }
        )


def nothing(*args: Any, **settings: Any) -> None:
    pass


def drained(order: GroupOrder, accelerator: Any, stream: int) -> None:
    """Run all queued work instead of recording an event, because MPI fails if the order of messages differs."""
    accelerator.model.run_until(lambda: not accelerator.model.pending)


FAULTS: dict[str, tuple[type, str, Callable[..., None]]] = {
    "the caller's values": (DevicePlace, "lead", nothing),
    "the result": (DevicePlace, "follow", nothing),
    "the order of NCCL's operations": (GroupOrder, "before", drained),
}


def planted() -> None:
    """Remove each kind of event in turn, and print the errors that the strict device detects."""
    run = make_run(Layout(dp=WORLD.size), INT8, zero=0, steps=1, warmup_steps=0)
    for name, (owner, method, function) in FAULTS.items():
        with patch.object(owner, method, function):
            _, device = over_nccl(run, 3, 0)
        tell({"planted": name, "errors": device.errors[:3]})


def tell(fields: dict[str, Any]) -> None:
    everyone = WORLD.gather(fields)
    if everyone:
        print(json.dumps({"ranks": everyone}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
