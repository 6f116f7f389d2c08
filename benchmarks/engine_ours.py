"""hpcbench programs that engine.py measures: the engine under several schemes, and with PyTorch's optimizer."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from engine_runs import MPI, NONE, Contender, Step
from mpi4py import MPI as mpi  # noqa: N811
from torch import Tensor

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.parallel.pieces import Piece
from hpcbench.train.trainer import Trainer

BASELINE = NamedScheme(name="baseline", algorithm="native", default="none")
IDENTITY = NamedScheme(name="identity", algorithm="encoded", default="none")
LOSSY = tuple(
    NamedScheme(name=name, algorithm="encoded", default="none", rules=[Rule(dimension="DP", codec=codec)])
    for name, codec in (("fp16", "fp16"), ("bf16", "bf16"), ("int8", "int8:256"), ("zfp8", "zfp:8"))
)


class FusedAdamW:
    """PyTorch's fused AdamW on a piece of the engine's weights, called for each parameter, as in PyTorch programs."""

    def __init__(self, piece: Piece, run: Run) -> None:
        self.updates = 0
        train = run.train
        groups: dict[float, list[torch.nn.Parameter]] = {train.weight_decay: [], 0.0: []}
        for slot, part, _ in piece.parts():
            values = torch.nn.Parameter(piece.master[part].detach())
            values.grad = piece.gradient[part]
            groups[train.weight_decay if slot.parameter.dim() > 1 else 0.0].append(values)
        self._optimizer = torch.optim.AdamW(
            [{"params": each, "weight_decay": decay} for decay, each in groups.items()],
            betas=(train.beta1, train.beta2),
            eps=train.eps,
            fused=True,
        )

    def step(self, master: Tensor, gradient: Tensor, *, lr: float, factor: float = 1.0) -> None:
        """Update one piece, as `hpcbench.parallel.adamw.AdamWState.step` does."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        if factor != 1.0:
            gradient.mul_(factor)
        self._optimizer.step()
        self.updates += 1


class Engine:
    """Object that runs steps of a `Trainer` and times the optimizer separately."""

    def __init__(self, run: Run, comm: mpi.Comm, corpus: Any, *, fused: bool = False) -> None:
        wait = Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN
        self._trainer = Trainer(run, comm.Dup(), Progress(wait, background=run.train.overlap), corpus)
        self._ranks = run.ranks
        for piece in self._trainer.data_parallel.pieces if fused else ():
            piece.adam = FusedAdamW(piece, run)  # type: ignore[assignment]

    def step(self, k: int) -> Step:
        """Take step k."""
        before = self._trainer.phases.step, self._trainer.phases.optimizer
        loss = self._trainer.step(k).loss / self._ranks
        all_s, optimizer_s = self._trainer.phases.step - before[0], self._trainer.phases.optimizer - before[1]
        return Step(loss, all_s - optimizer_s, optimizer_s)


def ours(run: Run, comm: mpi.Comm, corpus: Any) -> Iterator[Contender]:
    """List the variants of the engine. The goal applies to the first variant."""

    def engine(scheme: NamedScheme, **how: Any) -> Callable[[], Callable[[int], Step]]:
        return lambda: Engine(run.changed(scheme=scheme), comm, corpus, **how).step

    if comm.size == 1:
        yield Contender("hpcbench", NONE, engine(BASELINE))
        yield Contender("hpcbench, PyTorch's fused AdamW", NONE, engine(BASELINE, fused=True))
        return
    yield Contender("hpcbench baseline", MPI, engine(BASELINE))
    yield Contender("hpcbench baseline, PyTorch's fused AdamW", MPI, engine(BASELINE, fused=True))
    yield Contender("hpcbench identity", MPI, engine(IDENTITY))
    for scheme in LOSSY:
        yield Contender(f"hpcbench {scheme.name}", MPI, engine(scheme), exact=False)
