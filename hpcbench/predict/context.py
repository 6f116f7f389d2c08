"""What attention over the ranks of context parallelism sends in a layer, of one micro-batch. Pure.

With n values of each of queries, keys, values and results on a rank, and p ranks that share positions:

======== ========================== ==========================================================
way      forward                    backward
======== ========================== ==========================================================
ring     p - 1 messages of 2n       p - 1 of 2n once more, and p - 1 of 2n with their gradients
rsa      2 (p - 1) messages of n    2 (p - 1) of n once more, and 2 (p - 1) of n with gradients
ulysses  all-to-all of 3n and of n  all-to-all of n and of 3n, all gradients
======== ========================== ==========================================================
"""

from typing import NamedTuple

from hpcbench.contract.layout import Layout
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model, Train

FORWARD: Traffic = ("CP", "FORWARD", "ACT")
BACKWARD: Traffic = ("CP", "BACKWARD", "GRAD")


class AttentionCall(NamedTuple):
    """Calls of a layer that are alike."""

    channel: Traffic
    operation: str
    elements: int
    times: int


def count_values(model: Model, train: Train, layout: Layout) -> int:
    """Values of a rank's queries, or keys, of one micro-batch."""
    cut = layout.tp
    if layout.tensor != "1d":
        inner = layout.grid.inner
        cut = layout.grid.count(inner.rows) * layout.grid.count(inner.columns)
    return train.micro_batch * train.seq_len // layout.cp * model.hidden // cut


def count_turns(model: Model, train: Train, layout: Layout) -> int:
    """In how many turns Ulysses exchanges the heads of a rank."""
    cut = layout.tp if layout.tensor == "1d" else layout.grid.count(layout.grid.inner.columns)
    return 2 if train.overlap and model.heads // cut // layout.cp % 2 == 0 else 1


def list_forward(model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    """AttentionCall by the attention of a layer in the forward pass, and once more where it is recomputed."""
    return _sent(FORWARD, model, train, layout)


def list_backward(model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    """AttentionCall by the attention of a layer in the backward pass."""
    again = [] if layout.context == "ulysses" else list_forward(model, train, layout)
    return again + _sent(BACKWARD, model, train, layout)


def _sent(channel: Traffic, model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    n, p = count_values(model, train, layout), layout.cp
    if p == 1:
        return []
    if layout.context == "ulysses":
        turns = count_turns(model, train, layout)
        return [AttentionCall(channel, "all-to-all", each * n // turns, turns) for each in (3, 1)]
    each = 2 if layout.context == "ring" else 1
    return [AttentionCall(channel, "send", each * n, 2 // each * (p - 1))]
