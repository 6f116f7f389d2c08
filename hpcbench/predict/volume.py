"""Message bytes of a training step, as integers that equal the engine's counters (pure arithmetic).

A collective counts what its bandwidth-optimal form sends: over t ranks and n bytes (t-1) n for a reduce-scatter and for
an all-gather, twice that for an all-reduce. Algorithms that send whole vectors, such as recursive doubling, send more.
"""

from typing import NamedTuple


class TensorParallelBytes(NamedTuple):
    """Of one step, summed over all ranks."""

    forward: int
    """Activations: channel TP FORWARD ACT, or SP with sequence parallelism."""
    backward: int
    """Their gradients: channel TP BACKWARD GRAD, or SP."""
    statistics: int
    """Of the softmax: largest logit, sum of exponentials and target logit (EXACT FORWARD ACT)."""
    gradients: int
    """Of the parameters that sequence parallelism computes by positions (EXACT BACKWARD GRAD)."""


def tensor_parallel_bytes(
    *,
    layers: int,
    hidden: int,
    seq_len: int,
    global_batch: int,
    positions: str,
    tp: int,
    dp: int,
    zero: int,
    itemsize: int,
    sequence_parallel: bool,
) -> TensorParallelBytes:
    """What tensor parallelism (arXiv 1909.08053, section 3) sends, with sequence parallelism (2205.05198) or without.

    Forward the stream leaves two regions a layer and the embedding, and enters two regions a layer and the head. That
    takes 2l + 1 all-reduces each way, or 2l + 1 all-gathers and as many reduce-scatters, which together send the same.
    Neither the pipeline nor the size of micro-batches changes a byte.

    Parameters
    ----------
    layers, hidden, seq_len, global_batch
        Sizes of model and batch.
    positions
        ``learned`` or ``rotary``: learned ones have gradients.
    tp, dp
        Sizes of the groups.
    zero
        ZeRO stage: from 1 on each replica completes the gradients that it owns, at stage 0 all of them.
    itemsize
        Bytes of a value as it is sent: 8 in fp64, 4 otherwise.
    sequence_parallel
        Whether the stream is spread by positions.
    """
    all_reduce = 2 * (tp - 1) * itemsize  # of one value
    tokens = global_batch * seq_len
    activations = (2 * layers + 1) * tokens * hidden * all_reduce
    spread = (
        6 * layers + 2 + (seq_len if positions == "learned" else 0)
    ) * hidden  # norms 4h, biases of rows 2h a layer
    return TensorParallelBytes(
        forward=activations,
        backward=activations,
        statistics=3 * tokens * all_reduce,
        gradients=(1 if zero else dp) * spread * all_reduce if sequence_parallel else 0,
    )
