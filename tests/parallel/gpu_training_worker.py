"""Worker that compares training on an emulated device in host memory, or on a real GPU, with training on the CPU.

Prints JSON lines.

The tests of collectives define the emulated device. The streams of this device are lazy, so a missing wait leads to a
missing result. PyTorch computes immediately, so the caller's stream never has pending work.
"""

import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import shared_text
import torch
import use_standin
from mpi4py import MPI
from runs import SCHEMES, run_of

sys.path.insert(0, str(Path(__file__).parents[1] / "comm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
import emulator
from emulated_accelerator import CALLER, LazyAccelerator, LazyDevice

from hpcbench.codecs.convert import build_of
from hpcbench.codecs.device import CupyDevice, View
from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.accelerator import CupyAccelerator, StreamEvent
from hpcbench.comm.places import Place, Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import CommPrecision
from hpcbench.parallel import buffers
from hpcbench.parallel.parallelize import TOKENS
from hpcbench.train import resources
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CODEC = "int8:256"
KEEPS = Rule(dimension="DP", codec=CODEC, feedback=True)
KEEPING = NamedScheme(name="keeping", algorithm="two-shot", default="none", rules=[KEEPS])
ONEBIT = NamedScheme(
    name="onebit", algorithm="two-shot", default="none", rules=[KEEPS.changed(kind="OPTIM")], optimizer="onebit-adam"
)
INT8 = NamedScheme(name="int8", algorithm="two-shot", default=CODEC)
EPS = 1e-3
"""Bound for updates of 1-bit Adam.

Gradients of the biases of keys consist of rounding errors, which depend on the device.
"""


def settings() -> dict[str, tuple[Run, bool]]:
    """Return runs that cover all training operations, and whether MPI accepts device pointers in each run."""

    def run_settings(layout: Layout, scheme: NamedScheme, **train: Any) -> Run:
        base = run_of("gpt2" if layout.pp > 1 else "neox", layout, precision="fp32", zero=train.pop("zero", 0))
        train = {"steps": 2, "global_batch": 4, "micro_batch": 1, "overlap": False, **train}
        model = base.model.changed(layers=2)
        return base.changed(model=model, scheme=scheme, train=base.train.changed(**train))

    fp16, bf16 = (CommPrecision(activations=name, gradients=name, parameters=name) for name in ("fp16", "bf16"))

    return {
        "native": (run_settings(Layout(dp=2), SCHEMES["baseline"], zero=1, overlap=True), False),
        "native by pointers": (run_settings(Layout(tp=2), SCHEMES["baseline"], sequence_parallel=True), True),
        "pipeline": (run_settings(Layout(pp=2), INT8), False),
        "tensor": (run_settings(Layout(tp=2), INT8, sequence_parallel=True), True),
        "residuals": (run_settings(Layout(dp=2), KEEPING, zero=2, overlap=True), False),
        "onebit": (
            run_settings(Layout(dp=2), ONEBIT, optimizer="onebit-adam", freeze_step=1, clip=0.0, eps=EPS),
            False,
        ),
        "weights": (run_settings(Layout(dp=2), INT8, zero=3, offload=True), True),
        "halves": (run_settings(Layout(dp=2), KEEPING, zero=2, overlap=True, precision="bf16"), False),
        "halves by pointers": (run_settings(Layout(tp=2), INT8, sequence_parallel=True, comm_precision=fp16), True),
        "halves in the baseline": (run_settings(Layout(dp=2), SCHEMES["baseline"], zero=1, comm_precision=bf16), False),
    }


def view_of_tensor(x: torch.Tensor) -> View:
    assert x.is_contiguous()
    return View(x.data_ptr(), x.numel(), np.dtype(str(x.dtype).removeprefix("torch.")), True)


class TensorDevice(LazyDevice):
    """A device that treats host tensors as its own."""

    def view(self, name: str, array: Any, stream: int) -> View:
        if not isinstance(array, torch.Tensor):
            return super().view(name, array, stream)
        return view_of_tensor(array)


class Disguised(LazyAccelerator):
    """An emulated device for PyTorch on the CPU. Work on the caller's stream completes immediately."""

    def __init__(self) -> None:
        super().__init__()
        self.codecs = TensorDevice(self.streams)

    def follow(self, stream: int, event: StreamEvent) -> None:
        event.wait() if stream == CALLER else super().follow(stream, event)

    def copy(self, target: Any, source: Any, stream: int) -> None:
        super().copy(target, source, stream)
        if stream == CALLER:
            self.mark(CALLER).wait()


class Forgetful(Disguised):
    """A device that reports every event as complete."""

    def mark(self, stream: int) -> Any:
        event = super().mark(stream)
        event.wait = lambda: None  # type: ignore[method-assign]
        event.done = lambda: True  # type: ignore[method-assign]
        event.since = lambda earlier: 0.0  # type: ignore[method-assign]
        return event


class Watched(Places):
    """A group that records the size of its largest host array."""

    largest = 0

    def of(self, *arrays: Any) -> tuple[Place, tuple[Any, ...]]:
        if isinstance(arrays[0], np.ndarray):
            self.largest = max(self.largest, *(array.size for array in arrays))
        return super().of(*arrays)


def train(run: Run, places: Places | None) -> tuple[Trainer, dict[str, Any]]:
    """Train for a few steps and return the results. Counts are summed over ranks."""
    corpus = shared_text.corpus()
    progress = Progress(Wait.GIVE_WAY, background=run.train.overlap)
    trainer = Trainer(run, WORLD.Dup(), progress, corpus, places)
    results = [trainer.step(k) for k in range(run.train.steps)]
    state = io.BytesIO()
    torch.save({key: value for key, value in trainer.state().items() if key != "shards"}, state)
    return trainer, {
        "losses": [result.loss for result in results],
        "norms": [result.gradient_norm for result in results],
        "bytes": [(result.message_bytes, result.wire_bytes) for result in results],
        "evaluation": trainer.evaluate(),
        "state": state.getvalue().hex(),
        "agree": replicas_agree(trainer),
    }


def on_disguise(run: Run, places: Places) -> tuple[Trainer, dict[str, Any]]:
    with patch.object(buffers, "on_device", lambda x: True):
        return train(run, places)


def compile_kernels() -> None:
    types = np.dtype(np.float32), np.dtype(np.float16), BFLOAT16
    if WORLD.rank == 0:
        emulator.compile_all([emulator.build_of(CODEC, x, x) for x in types] + [build_of(types[0], x) for x in types])
    compiled = WORLD.Ibarrier()
    while not compiled.Test():
        time.sleep(0.02)  # leave the core to the compiler


def disguised() -> None:
    """Check every setting on the emulated device."""
    compile_kernels()
    for name, (run, aware) in settings().items():
        _, expected = train(run, None)
        device = Disguised()
        places = Watched(aware=aware, device_of=lambda x, device=device: device)
        trainer, run_result = on_disguise(run, places)
        expected_bytes = {
            "differs": [key for key in expected if run_result[key] != expected[key]],
            "largest": places.largest,
            "smallest": min(piece.bucket.values.numel() for piece in trainer.data_parallel.pieces),
            "staged": device.to_host,
            "elsewhere": device.elsewhere,
            "buffers": places.device_bytes,
        }
        tell({"setting": name, "aware": aware}, expected_bytes)
    planted()


def planted() -> None:
    """Check that results differ if the wait for the device is removed."""
    run, aware = settings()["tensor"]
    _, expected = train(run, None)
    device = Forgetful()
    _, run_result = on_disguise(run, Places(aware=aware, device_of=lambda x: device))
    tell({"setting": "planted"}, {"differs": [key for key in expected if run_result[key] != expected[key]]})


def on_gpu() -> None:
    """Check all training runs on a GPU. Ranks share GPUs if necessary."""
    parity(train_on_gpu, [*SCHEMES, "onebit"])


def settings_on_gpu() -> None:
    """Check the runs of `settings` on a GPU."""
    for name, (run, _) in settings().items():
        compare(name, run, train_on_gpu)


def train_on_gpu(run: Run) -> tuple[Trainer, dict[str, Any]]:
    torch.cuda.set_device(WORLD.rank % torch.cuda.device_count())
    return train(run.changed(device="cuda"), None)


def on_standin(*schemes: str) -> None:
    """Check training runs on the CuPy stand-in."""
    use_standin.use()
    accelerator = accelerator_of_tensors()
    parity(lambda run: on_disguise(run, Places(device_of=lambda x: accelerator)), schemes)


def accelerator_of_tensors() -> CupyAccelerator:
    """Return the stand-in's accelerator for host tensors. As for `Disguised`, PyTorch computes immediately."""

    class TensorDevice(CupyDevice):
        def stream(self, stream: Any, array: Any) -> int:
            return super().stream(CALLER if stream is None else stream, array)

        def view(self, name: str, array: Any, stream: int) -> View:
            return view_of_tensor(array) if isinstance(array, torch.Tensor) else super().view(name, array, stream)

    class Standin(CupyAccelerator):
        def __init__(self) -> None:
            super().__init__(0)
            self.codecs = TensorDevice(self._cupy)

        def follow(self, stream: int, event: StreamEvent) -> None:
            event.wait() if stream == CALLER else super().follow(stream, event)

        def copy(self, target: Any, source: Any, stream: int) -> None:
            super().copy(target, source, stream)
            if stream == CALLER:
                self.mark(CALLER).wait()

    return Standin()


def parity(train_there: Callable[[Run], tuple[Trainer, dict[str, Any]]], schemes: Sequence[str]) -> None:
    """Print the losses on the CPU and on the device."""
    for name in schemes:
        scheme = {**SCHEMES, "onebit": ONEBIT}[name]
        for precision in ("fp64", "fp32") if name in ("baseline", "identity") else ("fp32",):
            for layout, zero in ((Layout(dp=2, tp=2), 3), (Layout(dp=2, pp=2), 1)):
                run = run_of("neox", layout, precision=precision, zero=zero).changed(scheme=scheme)
                if scheme.optimizer:
                    settings = {"zero": 0, "optimizer": scheme.optimizer, "freeze_step": 1, "clip": 0, "eps": EPS}
                    run = run.changed(train=run.train.changed(**settings))
                compare(name, run, train_there)


def compare(name: str, run: Run, train_there: Callable[[Run], tuple[Trainer, dict[str, Any]]]) -> None:
    """Print the losses of a run on the CPU and on the device."""
    _, expected = train(run, None)
    trainer, run_result = train_there(run)
    memory = resources.memory(trainer).to_json()
    about = {"scheme": name, "precision": run.train.precision, "agree": run_result["agree"], "memory": memory}
    results = {"cpu": expected, "gpu": run_result}
    tell({**about, **{key: {**each, "state": ""} for key, each in results.items()}}, {})


def noise() -> None:
    """Print how noise of 1e-7 in the gradients changes the losses of 1-bit Adam, with the default `eps` and with `EPS`.

    Rows of the embedding table that no token uses have no noise.
    """
    backward = Trainer.backward

    def noisy(self: Trainer, step: int) -> Any:
        result = backward(self, step)
        for number, piece in enumerate(self.data_parallel.pieces):
            generator = torch.Generator().manual_seed(100 * number + step)
            for slot, part, _ in piece.parts():
                x = piece.gradient[part]
                noise = 1e-7 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
                x += noise * (x != 0) if slot.shard.name == TOKENS else noise
        return result

    def train_with_noise(run: Run) -> tuple[Trainer, dict[str, Any]]:
        with patch.object(Trainer, "backward", noisy):
            return train(run, None)

    base = run_of("neox", Layout(dp=2, tp=2), precision="fp32").changed(scheme=ONEBIT)
    for eps in (base.train.eps, EPS):
        train_settings = {"zero": 0, "optimizer": ONEBIT.optimizer, "freeze_step": 1, "clip": 0, "eps": eps}
        compare(str(eps), base.changed(train=base.train.changed(**train_settings)), train_with_noise)


def tell(about: dict[str, Any], fields: dict[str, Any]) -> None:
    everyone = WORLD.gather(fields)
    if everyone:
        print(json.dumps({**about, "ranks": everyone}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    function: Callable[..., None] = globals()[sys.argv[1]]
    function(*sys.argv[2:])
