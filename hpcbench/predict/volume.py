"""Message bytes of a training step, as integers that equal the engine's counters. Pure.

A collective counts the bytes of its bandwidth-optimal form, as the counters do for the MPI library. Over t ranks and n
bytes all ranks together send (t-1) n for a reduce-scatter or an all-gather, and twice that for an all-reduce; each rank
counts the piece that it owns. Two-shot sends the same sum over all ranks, but cuts the pieces of an all-reduce by
blocks of a codec, so that single ranks differ. Hierarchical algorithms send more within nodes, and recursive doubling
sends whole vectors.
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
    """Count the bytes that one rank sends in a step, by channel without those that carry nothing.

    The bytes do not depend on the schedule, which only changes the order of messages. Evaluations and checkpoints do
    not belong to a step. A scheme with a codec that cannot represent overflows makes one more exact sum per step, of
    the size of the norm's.

    Parameters
    ----------
    model, train, layout
        Model, settings and layout of the run.
    rank
        Rank in the world.
    updates
        Number of steps that the optimizer took before this one. It determines whether the variance of 1-bit Adam is
        frozen.
    node_ranks
        Number of neighbors of a data-parallel group that share a node, for `node_copy`. It divides the size of the
        group; None for the whole group.
    routed
        Counted rows of experts that drop nothing; None if all experts get the same number.
    rows
        Counted rows of the embedding's gradient, if they may be sent without the others.
    zeros
        Counted zeros of sparse weights in the masks; None for evenly distributed zeros, as with 2:4.
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
    for call, times in calls.list_all():
        sent[call.channel] += times * call.message_bytes(*calls.locate(call))
    return dict(+sent)


def count_all_ranks_bytes(
    model: Model, train: Train, layout: Layout, *, updates: int = 0, node_ranks: int | None = None
) -> dict[Traffic, int]:
    """Count the bytes that all ranks send in a step: the sum of `count_step_bytes`."""
    total = Counter[Traffic]()
    for rank in range(layout.ranks):
        total.update(count_step_bytes(model, train, layout, rank, updates=updates, node_ranks=node_ranks))
    return dict(total)
