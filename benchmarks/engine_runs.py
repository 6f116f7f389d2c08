"""Runs for the contenders of engine.py, and the results of a step."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Data, Model, Train

MPI, GLOO, NONE = "MPI", "gloo, TCP over loopback", "-"
"""Transports: the library that hpcbench uses, too; PyTorch's own for CPUs; nothing to send."""
CHECKED = 4
"""Steps after which the losses are compared; these are the warm-up, too."""


@dataclass(frozen=True)
class Size:
    """A model, and the work of a step."""

    name: str
    model: Model
    seq_len: int
    samples: int
    """A rank and step."""
    steps: int
    """Steps of a turn."""


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
    """The results of a step on a rank."""

    loss: float
    """A part of the loss that the ranks' sum completes."""
    gradients_s: float
    """Seconds of the forward and backward passes, including exposed communication of gradients."""
    optimizer_s: float
    """Norm, clipping, and the new weights."""


@dataclass(frozen=True)
class Contender:
    """A contender, and its function that takes steps."""

    name: str
    transport: str
    make: Callable[[], Callable[[int], Step]]
    """Makes the function that takes step k."""
    exact: bool = True
    """Whether its losses equal the reference's, apart from rounding."""
    fair: bool = False
    """Whether it may set the goal, as the fastest of these: other programs, exact, over the same transport."""


def run_of(size: Size, ranks: int, threads: int, scheme: NamedScheme, steps: int = 10_000) -> Run:
    """Return a run of the engine. Learning rates change too slowly for the number of steps to matter."""
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
