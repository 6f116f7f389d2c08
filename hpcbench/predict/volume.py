"""Exact message bytes of a training step: integers that match the engine's counters. Pure.

For a collective, the bytes of the bandwidth-optimal algorithm are counted, as in the engine's counters for the MPI
library. With t ranks and n bytes, all ranks together send (t-1) n bytes for a reduce-scatter or an all-gather, and
twice as many for an all-reduce. The bytes of a rank depend on the size of the piece that it owns. The two-shot
algorithm sends the same total, but aligns the pieces of an all-reduce to codec blocks, so individual ranks differ.
Hierarchical algorithms send more within nodes, and recursive doubling sends whole vectors.
"""

from collections import Counter
from typing import Any

from hpcbench.contract.layout import Layout
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model, Train
from hpcbench.predict.calls import StepCalls


def count_step_bytes(model: Model, train: Train, layout: Layout, rank: int, **options: Any) -> dict[Traffic, int]:
    """Count the bytes that one rank sends in a step, for each channel with traffic.

    The bytes do not depend on the schedule, which only changes the order of messages. Evaluations and checkpoints are
    not part of a step. If a scheme's codec cannot represent overflows, each step contains one more exact sum, of the
    same size as the sum for the norm.

    Parameters
    ----------
    model, train, layout
        Model, settings and layout of the run.
    rank
        Rank in the world.
    options
        Options of `StepCalls`.
    """
    calls = StepCalls(model, train, layout, rank, **options)
    sent = Counter[Traffic]()
    for call, times in calls.list_all():
        sent[call.channel] += times * call.message_bytes(*calls.locate(call))
    return dict(+sent)


def count_all_ranks_bytes(model: Model, train: Train, layout: Layout, **options: Any) -> dict[Traffic, int]:
    """Count the bytes that all ranks send in a step, as the sum of `count_step_bytes` over ranks."""
    total = Counter[Traffic]()
    for rank in range(layout.ranks):
        total.update(count_step_bytes(model, train, layout, rank, **options))
    return dict(total)
