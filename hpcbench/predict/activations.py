"""Activation memory of a pipeline stage: the number of live micro-batches, and bytes per layer. Pure."""

from collections.abc import Iterable, Sequence

from hpcbench.parallel.schedule import Action


def count_alive(actions: Iterable[Action], layers: Sequence[int] | None = None) -> int:
    """Return the largest number of forward passes whose backward pass is still outstanding.

    Parameters
    ----------
    actions
        Actions of the stage, in the order of its schedule.
    layers
        Number of layers in each chunk of the stage, if layers are to be counted. By default, (micro-batch, chunk) pairs
        are counted.
    """
    alive = most = 0
    for action in actions:
        weight = layers[action.chunk] if layers else 1
        alive += weight if action.work == "forward" else -weight
        most = max(most, alive)
    return most


def count_layer_bytes(
    *,
    seq_len: int,
    micro_batch: int,
    hidden: int,
    heads: int,
    tp: int = 1,
    sequence_parallel: bool = False,
    recompute: str | int = "none",
) -> float:
    """Return the 16-bit activation bytes of one layer and micro-batch on one rank (arXiv 2205.05198, table 2).

    The formula is ``s b h (10 + 24/t + 5 a s / (h t))``, and with sequence parallelism ``s b h (34/t + 5 a s / (h
    t))``. The term 10 covers norms, dropouts and the inputs of column layers. Selective recomputation drops the last
    term. Full recomputation keeps only the layer's input, ``2 s b h``. If n layers are recomputed together, only every
    n-th layer keeps its input. With sequence parallelism, each rank keeps 1/t of the input. As in the paper, each
    dropout mask takes s b h bytes, and attention scores are assumed to be kept.
    """
    tokens = seq_len * micro_batch * hidden
    spread = tp if sequence_parallel else 1
    if recompute in ("none", "selective"):
        scores = 5 * heads * seq_len / hidden if recompute == "none" else 0.0
        return tokens * (10 / spread + (24 + scores) / tp)
    return 2 * tokens / spread / (1 if recompute == "full" else int(recompute))
