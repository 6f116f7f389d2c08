"""Communication calls of context-parallel attention in one layer and micro-batch. Pure.

On each rank, queries and results have n values each, and keys and values have m values each (m = n without grouped
queries). The positions are divided among p ranks:

======== =============================== ===========================================================
way      forward                         backward
======== =============================== ===========================================================
ring     p - 1 messages of 2m            p - 1 of 2m once more, and p - 1 of 2m with their gradients
rsa      2 (p - 1) messages of m         2 (p - 1) of m once more, and 2 (p - 1) of m with gradients
ulysses  all-to-all of n + 2m and of n   all-to-all of n and of n + 2m, all gradients
======== =============================== ===========================================================
"""

from typing import NamedTuple

from hpcbench.contract.layout import Layout
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model, Train

FORWARD: Traffic = ("CP", "FORWARD", "ACT")
BACKWARD: Traffic = ("CP", "BACKWARD", "GRAD")


class AttentionCall(NamedTuple):
    """A call for the attention of one layer, with its number of repetitions."""

    channel: Traffic
    operation: str
    elements: int
    times: int


def count_values(model: Model, train: Train, layout: Layout) -> int:
    """Return the number of query values of a rank in one micro-batch."""
    cut = layout.tp
    if layout.tensor != "1d":
        inner = layout.grid.inner
        cut = layout.grid.count(inner.rows) * layout.grid.count(inner.columns)
    return train.micro_batch * train.seq_len // layout.cp * model.hidden // cut


def count_key_values(model: Model, train: Train, layout: Layout) -> int:
    """Return the number of key values of a rank in one micro-batch."""
    return count_values(model, train, layout) // model.heads * model.groups


def list_forward(model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    """List the attention calls of a layer's forward pass, including a recomputed pass."""
    return _sent(FORWARD, model, train, layout)


def list_backward(model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    """List the attention calls of a layer's backward pass."""
    again = [] if layout.context == "ulysses" else list_forward(model, train, layout)
    return again + _sent(BACKWARD, model, train, layout)


def _sent(channel: Traffic, model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    n, keys, p = count_values(model, train, layout), count_key_values(model, train, layout), layout.cp
    if p == 1:
        return []
    if layout.context == "ulysses":
        # With overlap, the heads of a rank are exchanged in two rounds if they can be halved.
        cut = layout.tp if layout.tensor == "1d" else layout.grid.count(layout.grid.inner.columns)
        turns = 2 if train.overlap and model.groups // cut // p % 2 == 0 else 1
        return [AttentionCall(channel, "all-to-all", elements // turns, turns) for elements in (n + 2 * keys, n)]
    each = 2 if layout.context == "ring" else 1
    return [AttentionCall(channel, "send", each * keys, 2 // each * (p - 1))]
