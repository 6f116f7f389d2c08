"""What the ZeRO stages hold and send, as integers (arXiv 1910.02054, sections 3, 5 and 7). Pure.

Lengths are those of a rank's buckets, in elements, padded so that all pieces of a bucket are equal; their sum is the
number of parameters on the rank and the padding.
"""

from collections.abc import Sequence
from fractions import Fraction

MOMENTS = 2
"""Number of Adam's moments, in the dtype of the master weights."""


def count_published_bytes(stage: int, ranks: int) -> Fraction:
    """Bytes a parameter in mixed precision as the paper counts them: gradients in half precision, K = 12."""
    kept = {0: 16, 1: 4, 2: 2, 3: 0}[stage]
    return kept + Fraction(16 - kept, ranks)


def count_state_bytes(
    stage: int,
    lengths: Sequence[int],
    ranks: int,
    *,
    parameter: int,
    master: int,
    offload: bool = False,
    node_ranks: int | None = None,
) -> dict[str, int]:
    """Bytes that last from step to step on one rank, on its device and with its host.

    The owner's sums of gradients are in the dtype of the master weights, not rounded to that of the parameters as in
    the paper; and at stage 3 the master weights are what is gathered, so there are no pieces in half precision. With
    2 and 4 bytes that is 20, 4 + 16/N, 2 + 16/N and 16/N bytes a parameter. At stage 0 parameters that are as wide as
    master weights are these, and their gradients the sums.

    Parameters
    ----------
    stage
        0 to 3.
    lengths
        Elements of each bucket.
    ranks
        Data-parallel ones.
    parameter, master
        Bytes of an element of the parameters, and of the master weights.
    offload
        What the optimizer works on is the host's.
    node_ranks
        Ranks that share a second copy of the parameters; None without one.
    """
    whole = sum(lengths)
    piece = whole // ranks if stage else whole
    home = "host" if offload else "device"
    held = {"device parameters": 0, "device gradients": 0, f"{home} gradients": 0, f"{home} optimizer": 0}
    held["device parameters"] += whole * parameter if stage < 3 else 0
    held["device parameters"] += piece * master if stage == 3 and offload else 0
    held["device parameters"] += whole // node_ranks * parameter if node_ranks else 0
    held["device gradients"] += whole * parameter if stage < 2 else 0
    in_place = stage == 0 and parameter == master and not offload
    held[f"{home} gradients"] += 0 if in_place else piece * master
    held[f"{home} optimizer"] += (MOMENTS + (not in_place)) * piece * master
    return held


def count_message_bytes(
    stage: int,
    lengths: Sequence[int],
    ranks: int,
    *,
    gradient: int,
    parameter: int,
    micro_batches: int,
    gathers: Sequence[int] = (),
    node_ranks: int | None = None,
) -> dict[tuple[str, ...], int]:
    """Bytes that one rank sends in a step, by dimension, phase and kind of the channel.

    In an all-reduce, a reduce-scatter or an all-gather every owner's piece goes between the owner and every other rank,
    as in two-shot. The best algorithms of MPI libraries send the same volumes.

    Parameters
    ----------
    gradient, parameter
        Bytes of an element as it is sent.
    micro_batches
        Number of micro-batches in a step.
    gathers
        At stage 3, how often the forward pass of a micro-batch gathers each bucket: once for each run of neighbouring
        units that use it. The backward pass gathers each once.
    node_ranks
        Ranks of which the backward pass gathers; None for all.
    """
    once = sum(_others(n, ranks) for n in lengths)
    times = {0: 2, 1: 1, 2: micro_batches, 3: micro_batches}[stage]
    sent: dict[tuple[str, ...], int] = {("DP", "BACKWARD", "GRAD"): times * once * gradient}
    if stage in (1, 2):
        sent["ZERO", "STEP", "PARAM"] = once * parameter
    if stage == 3:
        forward = sum(times * _others(n, ranks) for times, n in zip(gathers, lengths, strict=True))
        sent["ZERO", "FORWARD", "PARAM"] = micro_batches * forward * parameter
        backward = sum(_others(n, node_ranks or ranks) for n in lengths)
        sent["ZERO", "BACKWARD", "PARAM"] = micro_batches * backward * parameter
    return sent


def count_link_bytes(
    stage: int, lengths: Sequence[int], ranks: int, *, master: int, micro_batches: int
) -> tuple[int, int]:
    """Bytes over the host's link in a step with offload: reduced gradients down, updated weights up."""
    piece = sum(lengths) // ranks if stage else sum(lengths)
    return piece * master * (micro_batches if stage >= 2 else 1), piece * master


def _others(n: int, ranks: int) -> int:
    """Elements of all pieces but one."""
    return n // ranks * (ranks - 1)
