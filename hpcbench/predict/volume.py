"""Message bytes of a training step, as integers equal to the engine's counters. Pure.

A collective counts the bytes of the bandwidth-optimal algorithm, as the counters do for the MPI library. With t ranks
and n bytes, all ranks together send (t-1) n bytes for a reduce-scatter or an all-gather, and twice as many for an
all-reduce. Each rank counts the piece that it owns. Two-shot sends the same total, but aligns the pieces of an
all-reduce to codec blocks, so individual ranks differ. Hierarchical algorithms send more within nodes, and recursive
doubling sends whole vectors.
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
    low_rank: int = 0,
) -> dict[Traffic, int]:
    """Count the bytes that one rank sends in a step, for each channel with traffic.

    The bytes do not depend on the schedule, which only changes the order of messages. Evaluations and checkpoints are
    not part of a step. If a scheme's codec cannot represent overflows, each step contains one more exact sum, as large
    as the sum for the norm.

    Parameters
    ----------
    model, train, layout
        Model, settings and layout of the run.
    rank
        Rank in the world.
    updates
        Number of previous optimizer steps. It determines whether the variance of 1-bit Adam is frozen.
    node_ranks
        Number of neighboring data-parallel ranks on a node, for `node_copy`. It must divide the group size. The value
        None means the whole group.
    routed
        Counted rows for experts without token dropping, or None if all experts get the same number.
    rows
        Counted rows of the embedding gradient, if touched rows may be sent alone.
    zeros
        Counted zeros in the masks of sparse weights, or None for evenly distributed zeros, such as 2:4.
    low_rank
        Rank of the approximation of gradient matrices in this step, or 0 for whole gradients.
    """
    calls = StepCalls(
        *(model, train, layout, rank),
        updates=updates,
        node_ranks=node_ranks,
        routed=routed,
        rows=rows,
        zeros=zeros,
        low_rank=low_rank,
    )
    sent = Counter[Traffic]()
    for call, times in calls.list_all():
        sent[call.channel] += times * call.message_bytes(*calls.locate(call))
    return dict(+sent)


def count_all_ranks_bytes(
    model: Model, train: Train, layout: Layout, *, updates: int = 0, node_ranks: int | None = None
) -> dict[Traffic, int]:
    """Count the bytes that all ranks send in a step, as the sum of `count_step_bytes` over ranks."""
    total = Counter[Traffic]()
    for rank in range(layout.ranks):
        total.update(count_step_bytes(model, train, layout, rank, updates=updates, node_ranks=node_ranks))
    return dict(total)
