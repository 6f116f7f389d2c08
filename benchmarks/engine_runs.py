"""Runs for the programs that engine.py measures, and the results of a step."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Data, Model, Train

MPI, GLOO, NONE = "MPI", "gloo, TCP over loopback", "-"
"""Transports: the MPI library that hpcbench uses, PyTorch's backend for CPUs, and none."""
CHECKED = 4
"""Number of warm-up steps. The losses are compared after these steps."""


@dataclass(frozen=True)
class Size:
    """A model, and the work of a step."""

    name: str
    model: Model
    seq_len: int
    samples: int
    """Samples per rank and step."""
    steps: int
    """Number of steps in a turn."""


def _model(layers: int, hidden: int, heads: int) -> Model:
    return Model(
        name=f"{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocab=256,
        positions="rotary",
        rotary_fraction=0.25,
        parallel_residual=True,
        tied=False,
    )


COMPUTE = Size("compute", _model(4, 256, 4), 256, 4, steps=2)
COMMUNICATION = Size("communication", _model(4, 384, 4), 32, 1, steps=6)
TINY = Size("tiny", _model(2, 64, 4), 32, 2, steps=2)


@dataclass(frozen=True)
class Step:
    """Results of a step on a rank."""

    loss: float
    """The rank's part of the loss. The loss is the sum over all ranks."""
    gradients_s: float
    """Time of the forward and backward passes in seconds, including exposed gradient communication."""
    optimizer_s: float
    """Time of the gradient norm, clipping and update in seconds."""


@dataclass(frozen=True)
class Contender:
    """A measured program, with a function that prepares its steps."""

    name: str
    transport: str
    make: Callable[[], Callable[[int], Step]]
    """Function that sets up the program and returns the function that runs step k."""
    exact: bool = True
    """Whether the losses equal the reference's losses up to rounding."""
    fair: bool = False
    """Whether the program may set the goal.

    Such a program is not from hpcbench, is exact, and uses the same transport.
    """


def run_of(size: Size, ranks: int, threads: int, scheme: NamedScheme, steps: int = 10_000) -> Run:
    """Return a run of the engine. The number of steps does not matter, because the learning rate barely changes."""
    train = Train(
        steps=steps,
        warmup_steps=10,
        global_batch=ranks * size.samples,
        micro_batch=size.samples,
        seq_len=size.seq_len,
        precision="fp32",
        zero=0,
        seed=1,
        lr=1e-3,
        min_lr=1e-4,
        beta1=0.9,
        beta2=0.95,
        eps=1e-8,
        weight_decay=0.01,
        clip=1.0,
        bucket_mb=25.0,
        overlap=ranks > 1,
        eval_every=0,
        eval_samples=1,
    )
    return Run(
        schema=1,
        study="engine",
        site="local",
        run="engine",
        repeat=1,
        pairing="r1",
        cell={},
        model=size.model,
        data=Data(source="stdlib", valid_fraction=0.1),
        train=train,
        layout=Layout(dp=ranks),
        scheme=scheme,
        ranks=ranks,
        threads=threads,
        oversubscribe=ranks * threads > len(os.sched_getaffinity(0)),
        device="cpu",
        links=None,
    )
