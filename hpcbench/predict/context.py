"""Calls of context-parallel attention in one layer and micro-batch. Pure.

Queries, keys, values and results have n values each on a rank; p ranks share the positions:

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
    """Identical calls of one layer."""

    channel: Traffic
    operation: str
    elements: int
    times: int


def count_values(model: Model, train: Train, layout: Layout) -> int:
    """Return the number of values in a rank's queries (or keys) of one micro-batch."""
    cut = layout.tp
    if layout.tensor != "1d":
        inner = layout.grid.inner
        cut = layout.grid.count(inner.rows) * layout.grid.count(inner.columns)
    return train.micro_batch * train.seq_len // layout.cp * model.hidden // cut


def count_turns(model: Model, train: Train, layout: Layout) -> int:
    """Return the number of rounds in which Ulysses exchanges the heads of a rank."""
    cut = layout.tp if layout.tensor == "1d" else layout.grid.count(layout.grid.inner.columns)
    return 2 if train.overlap and model.heads // cut // layout.cp % 2 == 0 else 1


def list_forward(model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    """List the calls of a layer's attention in its forward pass, also when it is recomputed."""
    return _sent(FORWARD, model, train, layout)


def list_backward(model: Model, train: Train, layout: Layout) -> list[AttentionCall]:
    """List the calls of a layer's attention in its backward pass."""
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
