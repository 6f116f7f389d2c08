"""How many micro-batches' activations a pipeline stage keeps, and how large they are (pure arithmetic)."""

from collections.abc import Iterable, Sequence

from hpcbench.parallel.schedule import Action


def count_alive(actions: Iterable[Action], layers: Sequence[int] | None = None) -> int:
    """The most that one stage keeps at a time, from a forward to its backward.

    Parameters
    ----------
    actions
        Actions of the stage, in the order of its schedule.
    layers
        Layers of each of its chunks: then layers are counted, else (micro-batch, chunk) pairs.
    """
    alive = most = 0
    for action in actions:
        weight = layers[action.chunk] if layers else 1
        alive += weight if action.work == "forward" else -weight
        most = max(most, alive)
    return most


def count_alive_by_formula(name: str, *, stage: int, stages: int, microbatches: int, chunks: int = 1) -> int:
    """`count_alive` of a schedule in closed form.

    ``m`` for GPipe, ``min(p - r, m)`` for 1F1B (arXiv 2104.04473, section 2.2), and one more than Megatron-LM's warm-up
    for interleaved: ``min(2 (p - r - 1) + (v - 1) p + 1, v m)``, which on the first stage is 1 + (p - 1)/(p v) times
    the p v chunks of 1F1B (arXiv 2205.05198, section 4.2.3). Without a flush ``p - r``, however few a step has.
    """
    counts = {
        "gpipe": microbatches,
        "1f1b": min(stages - stage, microbatches),
        "pipedream": stages - stage,
        "pipedream-2bw": stages - stage,
        "interleaved": min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, chunks * microbatches),
    }
    return counts[name]


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
    """Bytes that one layer keeps of one micro-batch in 16 bits, on one rank (arXiv 2205.05198, table 2).

    ``s b h (10 + 24/t + 5 a s / (h t))``, and with sequence parallelism ``s b h (34/t + 5 a s / (h t))``: the 10 are
    norms, dropouts and the inputs of column layers. Selective recomputation drops the last term. With full
    recomputation only the input is left, ``2 s b h``, of every n-th layer where n layers are recomputed together; the
    t-th part of it where the stream is spread by positions. Dropout masks are counted as in the paper (s b h bytes
    each), and the scores as if the attention kernel kept them.

    With sequence parallelism the paper gathers the inputs of column layers again for the backward pass; this engine
    keeps them gathered, ``4 s b h (1 - 1/t)`` more without full recomputation.
    """
    tokens = seq_len * micro_batch * hidden
    spread = tp if sequence_parallel else 1
    if recompute in ("none", "selective"):
        scores = 5 * heads * seq_len / hidden if recompute == "none" else 0.0
        return tokens * (10 / spread + (24 + scores) / tp)
    return 2 * tokens / spread / (1 if recompute == "full" else int(recompute))
