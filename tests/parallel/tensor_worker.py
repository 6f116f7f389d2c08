"""Worker that tests tensor-parallel operations on two ranks, and the messages of a model's step. The worker prints JSON
lines.

A function of replicated tensors is checked as in one process: every rank takes its part of the arguments (`part`) and
joins the results of all ranks (`join`). Finite differences computed on both ranks therefore cover the whole function.
"""

import json
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import shared_text
import torch
from mpi4py import MPI
from parity import meet
from runs import in_pairs, label, run_of
from torch import Tensor, nn

from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Phase
from hpcbench.parallel.linear import ColumnLinear, RowLinear
from hpcbench.parallel.regions import SEQUENCE, WHOLE, Border, enter, leave
from hpcbench.parallel.vocabulary import PositionEmbedding, VocabularyEmbedding, split_loss
from hpcbench.train import model
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
B, S, H, N, V = 2, 4, 3, 5, 7  # N and V are odd, so the two ranks hold parts of different sizes


class _Part(torch.autograd.Function):
    """The rank's part of a replicated tensor. The backward pass joins the gradients of the parts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        return x[index(x.shape[dim], dim)].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.cat(WORLD.allgather(gradients[0]), dim=ctx.dim), None


class _Join(torch.autograd.Function):
    """The concatenated parts of all ranks. In the backward pass, each rank takes its own part of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        joined = torch.cat(WORLD.allgather(x.detach()), dim=dim)
        ctx.place = index(joined.shape[dim], dim)
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.place].clone(), None


part, join = _Part.apply, _Join.apply


def index(size: int, dim: int) -> tuple[slice, ...]:
    return (*[slice(None)] * dim, cut_evenly(size, WORLD.size)[WORLD.rank])


def values(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)


def with_weights(layer: nn.Module, **weights: Tensor) -> nn.Module:
    for name, weight in weights.items():
        del layer._parameters[name]
        setattr(layer, name, weight)
    return layer


def alone() -> None:
    operations()
    lossy()


def operations() -> None:
    group = Group(WORLD, Progress(Wait.GIVE_WAY))
    policy = Policy(Scheme(algorithm="native"))
    tokens = torch.tensor([[0, 6, 3, 4], [4, 2, 5, 1]])
    for name, stream in (("whole", WHOLE), ("spread", SEQUENCE)):
        border = Border.of(group, stream, policy)
        for operation, (ours, theirs, arguments) in cases(group, policy, border, tokens).items():
            upstream = values(*theirs(*arguments).shape, seed=9).detach()
            expected = differentiated(theirs, arguments, upstream)
            results = differentiated(ours, arguments, upstream)
            off = [float((a - b).norm() / b.norm()) for a, b in zip(results, expected, strict=True)]
            checked = torch.autograd.gradcheck(ours, arguments, raise_exception=False)
            report({"operation": operation, "stream": name, "errors": off, "gradcheck": checked})


def differentiated(f: Callable[..., Tensor], arguments: tuple[Tensor, ...], upstream: Tensor) -> list[Tensor]:
    result = f(*arguments)
    return [result.detach(), *torch.autograd.grad(result, arguments, upstream)]


def cases(
    group: Group, policy: Policy, border: Border, tokens: Tensor
) -> dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]]:
    """Return, by name, the parallel operation, the equivalent operation in one process, and the arguments."""
    spread = border.stream.spread

    def inward(x: Tensor) -> Tensor:
        return part(x, 1) if spread else x

    def outward(x: Tensor) -> Tensor:
        return join(x, 1) if spread else x

    def column(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        layer = with_weights(ColumnLinear(nn.Linear(H, N), border), weight=part(weight, 0), bias=part(bias, 0))
        return join(layer(inward(x)), 2)

    def row(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        bias = enter(bias, Border.of(group, WHOLE, policy)) if spread else bias  # its gradient is completed elsewhere
        layer = with_weights(RowLinear(nn.Linear(N, H), border), weight=part(weight, 1), bias=bias)
        return outward(layer(part(x, 2)))

    def embed(table: Tensor) -> Tensor:
        layer = VocabularyEmbedding(nn.Embedding(V, H, device="meta"), border)
        return outward(with_weights(layer, weight=part(table, 0))(tokens))

    def positions(table: Tensor) -> Tensor:
        table = enter(table, Border.of(group, WHOLE, policy)) if spread else table
        layer = with_weights(PositionEmbedding(nn.Embedding(S, H, device="meta"), border), weight=table)
        return outward(layer(torch.arange(S)).expand(B, -1, -1))

    def loss(logits: Tensor) -> Tensor:
        return split_loss(model.loss, vocab=V, group=group, policy=policy)(part(logits, 2), tokens)

    linear = nn.functional.linear
    x, wide = values(B, S, H, seed=1), values(B, S, N, seed=2)
    return {
        "enter": (lambda x: join(enter(inward(x), border), 2), lambda x: torch.cat((x, x), 2), (x,)),
        "leave": (
            lambda x: outward(leave(part(x, 2), border)),
            lambda x: x[..., :H] + x[..., H:],
            (values(B, S, 2 * H, seed=3),),
        ),
        "column": (column, linear, (x, values(N, H, seed=4), values(N, seed=5))),
        "row": (row, linear, (wide, values(H, N, seed=6), values(H, seed=7))),
        "embedding": (embed, lambda table: table[tokens], (values(V, H, seed=8),)),
        "positions": (positions, lambda table: table.expand(B, -1, -1), (values(S, H, seed=8),)),
        "cross-entropy": (loss, lambda logits: model.loss(logits, tokens), (values(B, S, V, seed=8),)),
    }


def lossy() -> None:
    """Check codecs in each direction.

    All ranks must decode the same values, and gradients must pass through unchanged.
    """
    group = Group(WORLD, Progress(Wait.GIVE_WAY))
    x = torch.randn(2, 64, 32, generator=torch.Generator().manual_seed(WORLD.rank))
    for codec, phase, (name, stream) in product(
        ("zfp:8", "int8:256"), (Phase.FORWARD, Phase.BACKWARD), (("whole", WHOLE), ("spread", SEQUENCE))
    ):
        policy = Policy(Scheme(rules=[Rule(codec=codec, phase=phase.value)]))
        border = Border.of(group, stream, policy)
        part = x[index(x.shape[1], 1)] if stream.spread else x
        outer, inner = part.clone().requires_grad_(), x.clone().requires_grad_()
        entered, left = enter(outer, border), leave(inner, border)
        entered.backward(x)
        left.backward(part)
        gathered, summed = (entered, left) if phase is Phase.FORWARD else (inner.grad, outer.grad)
        straight = (inner.grad, outer.grad) if phase is Phase.FORWARD else (entered, left)
        joined = torch.cat(WORLD.allgather(part), dim=1) if stream.spread else x
        total = torch.from_numpy(WORLD.allreduce(x.numpy()))[index(64, 1) if stream.spread else ...]
        counters = {channel.phase: channel.counters for channel in (border.forward, border.backward)}
        mine = counters.pop(phase)
        (other,) = counters.values()
        report(
            {
                "codec": codec,
                "phase": phase.value,
                "stream": name,
                "same": alike(gathered if stream.spread else summed),
                "error": relative(summed, total),
                "straight": [
                    relative(actual, wanted) for actual, wanted in zip(straight, (joined, total), strict=True)
                ],
                "ratio": mine.message_bytes / mine.wire_bytes,
                "plain": other.message_bytes == other.wire_bytes,
            }
        )


def alike(x: Tensor) -> bool:
    return len({each.detach().numpy().tobytes() for each in WORLD.allgather(x)}) == 1


def relative(x: Tensor, expected: Tensor) -> float:
    return float((x.detach() - expected).norm() / expected.norm())


def traffic() -> None:
    """Print the message bytes of one step, summed over the ranks."""
    corpus = shared_text.corpus()
    for name, layout, by_positions, scheme, precision in TRAFFIC:
        run = in_pairs(run_of(name, layout, scheme=scheme, precision=precision, sequence_parallel=by_positions))
        meet(WORLD)
        comm = WORLD.Split(0 if WORLD.rank < run.ranks else 1, WORLD.rank)
        if WORLD.rank < run.ranks:
            trainer = Trainer(run, comm, Progress(Wait.GIVE_WAY, background=True), corpus)
            trainer.step(0)
            rows = [row for row in trainer.traffic.report() if row.message_bytes]
            sent = {f"{r.dimension} {r.phase} {r.kind}": r.message_bytes for r in rows}
            case = {"model": name, "layout": label(layout), "sequence_parallel": by_positions, "precision": precision}
            report({**case, "sent": sent})


TRAFFIC = [
    ("neox", Layout(tp=2), False, "baseline", "fp64"),
    ("gpt2", Layout(tp=2), True, "baseline", "fp64"),
    ("gpt2", Layout(tp=4), True, "identity", "fp32"),
    ("neox", Layout(dp=2, tp=2), True, "baseline", "fp32"),
    ("gpt2", Layout(tp=2, pp=2), False, "identity", "bf16"),
    ("neox", Layout(tp=2, pp=2), True, "baseline", "fp16"),
    ("neox", Layout(dp=2, pp=2), True, "baseline", "fp32"),
]


def report(line: dict[str, object]) -> None:
    if WORLD.rank == 0:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
