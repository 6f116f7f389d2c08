"""Message bytes of a training step, as integers that equal the engine's counters. Pure.

A collective counts what its bandwidth-optimal form sends, as the MPI library's own are counted: over t ranks and n
bytes (t-1) n for a reduce-scatter and for an all-gather, twice that for an all-reduce, each rank by the piece that it
owns. Two-shot sends as much in all, but cuts the pieces of an all-reduce by blocks of a codec: there the sum over the
ranks is what equals. Hierarchical algorithms send more within nodes, recursive doubling sends whole vectors.
"""

from collections import Counter

from hpcbench.contract.layout import Layout
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.traffic import Zeros
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import Routed
from hpcbench.predict.rows import SentRows


def count_step_bytes(
    model: Model,
    train: Train,
    layout: Layout,
    rank: int,
    *,
    updates: int = 0,
    node_ranks: int | None = None,
    routed: Routed | None = None,
    rows: SentRows | None = None,
    zeros: Zeros | None = None,
) -> dict[Traffic, int]:
    """What one rank sends in a step, by channel; channels that carry nothing are left out.

    Schedules do not matter: each has the same messages in another order. Evaluations and checkpoints belong to no step.
    A scheme with a codec that does not carry overflows makes one more exact sum a step, as long as the norm's.

    Parameters
    ----------
    model, train, layout
        The run's model, settings and layout.
    rank
        In the world.
    updates
        Number of steps that the optimizer took before this one. It tells 1-bit Adam whether its variance is frozen.
    node_ranks
        Neighbours of a data-parallel group that share a node, for `node_copy`; they divide the group. None for all.
    routed
        Rows of experts that drop nothing, as counted in the step. None takes as many as if all experts got equally
        many.
    rows
        Rows of the embedding's gradient, as counted in the step, where they may travel by themselves.
    zeros
        Zeros of sparse weights, as counted in the masks. None takes them as evenly spread, which 2:4 always are.
    """
    calls = StepCalls(
        *(model, train, layout, rank),
        updates=updates,
        node_ranks=node_ranks,
        routed=routed,
        rows=rows,
        zeros=zeros,
    )
    sent = Counter[Traffic]()
    for call, times in calls.all():
        sent[call.channel] += times * call.message_bytes(*calls.locate(call))
    return dict(+sent)


def count_all_ranks_bytes(
    model: Model, train: Train, layout: Layout, *, updates: int = 0, node_ranks: int | None = None
) -> dict[Traffic, int]:
    """What all ranks send in a step: the sum of `count_step_bytes`."""
    total = Counter[Traffic]()
    for rank in range(layout.ranks):
        total.update(count_step_bytes(model, train, layout, rank, updates=updates, node_ranks=node_ranks))
    return dict(total)
