"""Worker that sums gradients with mixed widths on two replicas, and prints JSON lines.

The arguments are names of functions of this module.
"""

import math
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from gradient_schemes_worker import make_trainer, run_with, tell
from planting import Patch, list_faults
from torch import Tensor, nn
from zero_worker import WORLD

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.mixed_widths import SUPER_GROUP, name_codecs
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel import mixed_widths
from hpcbench.parallel.adamw import AdamW
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.exact import digest
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.mixed_widths import MixedWidths
from hpcbench.parallel.pieces import make_piece
from hpcbench.parallel.sharding import Held, Shard
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.volume import count_step_bytes
from hpcbench.train.agreement import replicas_agree

CODEC, BITS = "int4:16/256:nonuniform", 4.5625
"""The codec, and a budget equal to the size of its output."""
SIZE = get_codec(CODEC)
MIXED = Rule(dimension="DP", codec=CODEC, mixed_bits=BITS)
UNIFORM = Rule(dimension="DP", codec=CODEC)
CHANNELS = ("DP BACKWARD GRAD", "EXACT BACKWARD GRAD")
ELEMENTS = 2 * (SUPER_GROUP * 19 + 48)
"""Number of values in the bucket of the sums, in two pieces with a remainder."""


def step(run: Run) -> tuple[Tensor, dict[str, list[int]]]:
    """Train one step. Return the reduced gradients of this rank, and message and wire bytes by channel."""
    trainer = make_trainer(run)
    trainer.step(0)
    assert replicas_agree(trainer)
    counters = {" ".join(channel.traffic): channel.counters for channel in trainer.policy.channels}
    sent = {name: [counters[name].message_bytes, counters[name].wire_bytes] for name in CHANNELS if name in counters}
    return torch.cat([piece.gradient.flatten() for piece in trainer.data_parallel.pieces]), sent


def training() -> None:
    """At each ZeRO stage, compare mixed widths with a single width: errors of gradients, and bytes sent in a step."""
    for zero in (0, 1, 2, 3):
        settings = {"zero": zero, "bucket_mb": 0.05, "micro_batch": 2}
        exact, _ = step(run_with(**settings))
        uniform, uniform_bytes = step(run_with(UNIFORM, **settings))
        run = run_with(MIXED, **settings)
        mixed, mixed_bytes = step(run)
        predicted = count_step_bytes(run.model, run.train, run.layout, WORLD.rank, mixed_widths=(CODEC, BITS))
        squares = [WORLD.allreduce(float((values - exact).square().sum())) for values in (mixed, uniform)]
        tell(
            test="training",
            zero=zero,
            error=(squares[0] / squares[1]) ** 0.5,
            mixed=mixed_bytes,
            uniform=uniform_bytes,
            predicted={" ".join(key): nbytes for key, nbytes in predicted.items() if " ".join(key) in CHANNELS},
            budget=sum_budgets(run),
        )


def sum_budgets(run: Run) -> float:
    """Return the bytes that both ranks may send in a step. Values after the last super-group have four bits."""
    calls = StepCalls(run.model, run.train, run.layout, WORLD.rank)
    parts, total = (2, 0.0) if run.train.zero else (1, 0.0)
    for bucket, count in calls.buckets:
        groups, remainder = divmod(bucket.length // parts, SUPER_GROUP)
        cuts = 4 * 18 if parts == 1 else 0  # a cut within a group of 256 values repeats its scales
        in_full = parts * (groups * SUPER_GROUP * BITS / 8 + SIZE.wire_bytes(remainder, np.dtype(np.float32))) + cuts
        total += count * in_full * (2 if parts == 1 else 1)
    return total


def own_gradient(rank: int, parts: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the gradient of a rank. The gradient's super-groups have magnitudes from 1e-4 to 1, in a random order.

    In each piece, all ranks have the same super-groups, but in different orders. Ranks that choose widths by their own
    gradients therefore send messages of equal size.
    """
    random = np.random.default_rng(9)
    values = random.standard_normal((parts, ELEMENTS // parts), dtype=np.float32)
    groups = values.shape[1] // SUPER_GROUP
    for piece in values:
        scales = np.exp2(random.permutation(np.linspace(-13, 0, groups, dtype=np.float32)))
        cut = piece[: groups * SUPER_GROUP].reshape(groups, SUPER_GROUP)
        cut[...] = np.roll(cut * scales[:, None], 5 * rank, axis=0)
    return values.reshape(-1)


def choose(gradients: list[list[Any]], *, scattered: bool) -> list[list[list[int]]]:
    """For each piece, return the super-groups that get 2, 4 and 8 bits, given the pieces of all ranks.

    The implementation is plain Python.
    """
    groups = len(gradients[0][0]) // SUPER_GROUP
    levels = []
    for pieces in zip(*gradients, strict=True):
        cut = [[each[k * SUPER_GROUP : (k + 1) * SUPER_GROUP] for each in pieces] for k in range(groups)]
        norms = [[math.sqrt(sum(float(x) ** 2 for x in values)) for values in of_ranks] for of_ranks in cut]
        levels.append([max(round(2 * math.log2(norm)) + 128 for norm in of_ranks) for of_ranks in norms])
    orders = [sorted(range(groups), key=lambda k: -each[k]) for each in levels]
    bytes_left = groups * (BITS * 32 - (2 if scattered else 1) - 82)
    best: tuple[int, int, int] | None = None
    for wide in range(groups + 1):
        middle = min(groups - wide, math.floor((bytes_left - wide * (260 - 82)) / (146 - 82)))
        if middle < 0:
            break
        weights = [49] * wide + [16129] * middle + [49 * 16129] * (groups - wide - middle)
        error = sum(
            weight * 2 ** each[k]
            for each, order in zip(levels, orders, strict=True)
            for weight, k in zip(weights, order, strict=True)
        )
        if best is None or error < best[0]:
            best = error, wide, middle
    assert best is not None
    _, wide, middle = best
    return [
        [sorted(order[wide + middle :]), sorted(order[wide : wide + middle]), sorted(order[:wide])] for order in orders
    ]


def sum_by_model(group: Group, channels: list[Any], *, scattered: bool) -> Tensor:
    """Return the sum that the reducer must return, computed by an ordinary reduction for each width."""
    parts = 2 if scattered else 1
    pieces = [np.split(own_gradient(rank, parts) / np.float32(2), parts) for rank in range(2)]
    chosen = choose(pieces, scattered=scattered)
    contribution = pieces[WORLD.rank]
    index = []
    for part in range(parts):
        of_widths = [[k * SUPER_GROUP + i for k in places for i in range(SUPER_GROUP)] for places in chosen[part]]
        of_widths[1] += range(ELEMENTS // parts // SUPER_GROUP * SUPER_GROUP, ELEMENTS // parts)
        index.append(of_widths)
    result = np.full(ELEMENTS // parts, np.nan, np.float32)
    for width, channel in enumerate(channels):
        message = np.concatenate([contribution[part][index[part][width]] for part in range(parts)])
        if scattered:
            total = np.empty(len(message) // 2, np.float32)
            group.reduce_scatter(message, total, channel=channel).wait()
            result[index[WORLD.rank][width]] = total
        else:
            group.all_reduce(message, channel=channel).wait()
            result[index[0][width]] = message
    return torch.from_numpy(result)


def sums() -> None:
    """Compare the sums of the reducer with those of the model: without a fault, and with each fault."""
    group = Mesh(WORLD.Dup(), Layout(dp=2), Progress(Wait.GIVE_WAY)).dp
    of = (Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
    for scattered in (False, True):
        channels = [
            Policy(Scheme(algorithm="two-shot", rules=[Rule(dimension="DP", codec=codec)])).channel(*of)
            for codec in name_codecs(CODEC)
        ]
        expected = sum_by_model(group, channels, scattered=scattered)
        correct = reduce(group, expected, scattered=scattered)
        uniform = Policy(Scheme(algorithm="two-shot", rules=[UNIFORM])).channel(*of)
        tell(test="sums", scattered=scattered, fault=None, error=compare(group, uniform, expected), **correct)
        for name, fault in FAULTS.items():
            with fault():
                tell(test="sums", scattered=scattered, fault=name, **reduce(group, expected, scattered=scattered))
    overflow = reduce(group, torch.zeros(ELEMENTS), scattered=False, infinite=True)
    tell(test="overflow", finite=overflow["finite"], digest=overflow["digest"])


def compare(group: Group, channel: Channel, result: Tensor) -> float:
    """Return the error of a sum with mixed widths, relative to the error with the rule's codec alone."""
    parts = ELEMENTS // len(result)
    exact = np.split(sum(own_gradient(rank, parts) for rank in range(2)) / np.float32(2), parts)
    buffer = own_gradient(WORLD.rank, parts) / np.float32(2)
    group.all_reduce(buffer, channel=channel).wait()
    here = WORLD.rank if parts == 2 else 0
    errors = [np.linalg.norm(values - exact[here]) for values in (result.numpy(), np.split(buffer, parts)[here])]
    return float(errors[0] / errors[1])


def reduce(group: Group, expected: Tensor, *, scattered: bool, infinite: bool = False) -> dict[str, Any]:
    """Sum a gradient with mixed widths, and compare the sum with the expected sum."""
    policy = Policy(Scheme(algorithm="two-shot", rules=[MIXED]))
    channel = policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
    exact = policy.channel(Dimension.EXACT, Phase.BACKWARD, MessageKind.GRAD)
    held = [Held(nn.Parameter(torch.zeros(ELEMENTS)), Shard("weight", (ELEMENTS,)))]
    part, parts = (WORLD.rank, 2) if scattered else (0, 1)
    piece = make_piece(Bucket(held, 2), AdamW(0.9, 0.95, 1e-8, 0.0), part=part, parts=parts, feedback=False)
    piece.bucket.gradients.copy_(torch.from_numpy(own_gradient(WORLD.rank, parts)))
    if infinite and WORLD.rank:
        piece.bucket.gradients[700] = torch.nan
    reduction = MixedWidths(channel, exact).start(piece, piece.bucket.gradients, 2.0, group, scattered=scattered)
    assert reduction is not None
    reduction.wait()
    return {
        "equal": bool(torch.equal(reduction.result, expected)),
        "digest": digest([reduction.result.clone()]),
        "finite": bool(torch.isfinite(reduction.result).all()),
    }


# ---------------------------------------------------------------- planted faults


def widths_of_own_gradients() -> Patch:
    """Each rank chooses widths by its own gradients instead of the maximum over the replicas."""
    return patch.object(MixedWidths, "exchange", lambda self, levels, group: None)


def widths_reversed() -> Patch:
    """Super-groups with the smallest norms are sent with 8 bits."""
    choose_widths = mixed_widths.choose_widths
    return patch.object(mixed_widths, "choose_widths", lambda levels, budget: choose_widths(255 - levels, budget))


def remainder_lost() -> Patch:
    """The values after the last super-group are not written back."""
    complete = mixed_widths._complete

    def faulty(values: Tensor, places: Any, counts: Any, sums: Any) -> None:
        before = values.view(len(places[0]), -1)[:, counts.groups * SUPER_GROUP :].clone()
        complete(values, places, counts, sums)
        values.view(len(places[0]), -1)[:, counts.groups * SUPER_GROUP :] = before

    return patch.object(mixed_widths, "_complete", faulty)


FAULTS = list_faults(widths_of_own_gradients, widths_reversed, remainder_lost)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
