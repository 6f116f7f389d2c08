"""Memory and traffic of the ZeRO stages, as integers (arXiv 1910.02054, sections 3, 5 and 7). Pure.

Lengths are bucket sizes of a rank in elements, padded so that all pieces of a bucket are equal. The sum of the lengths
is the number of parameters on the rank plus padding.
"""

from collections.abc import Sequence

MOMENTS = 2
"""Number of Adam moments, which are stored in the dtype of the master weights."""


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
    """Return the number of bytes that one rank holds between steps on device and host.

    Two details differ from the paper. The owner's gradient sums keep the dtype of the master weights and are not
    rounded to the parameters' dtype. At stage 3, the master weights are gathered, so half-precision pieces do not
    exist. With 2 bytes per parameter and 4 bytes per master weight, the results for stages 0 to 3 are 20, 4 + 16/N, 2 +
    16/N and 16/N bytes per parameter. At stage 0, parameters with the width of the master weights serve as master
    weights, and their gradients serve as the sums.

    Parameters
    ----------
    stage
        ZeRO stage, 0 to 3.
    lengths
        Number of elements in each bucket.
    ranks
        Number of data-parallel ranks.
    parameter, master
        Bytes per element of the parameters and of the master weights.
    offload
        Whether the optimizer state is on the host.
    node_ranks
        Number of ranks over which a second copy of the parameters is sharded, or None if only one copy exists.
    """
    elements = sum(lengths)
    piece = elements // ranks if stage else elements
    home = "host" if offload else "device"
    held = {"device parameters": 0, "device gradients": 0, f"{home} gradients": 0, f"{home} optimizer": 0}
    held["device parameters"] += elements * parameter if stage < 3 else 0
    held["device parameters"] += piece * master if stage == 3 and offload else 0
    held["device parameters"] += elements // node_ranks * parameter if node_ranks else 0
    held["device gradients"] += elements * parameter if stage < 2 else 0
    in_place = stage == 0 and parameter == master and not offload
    held[f"{home} gradients"] += 0 if in_place else piece * master
    held[f"{home} optimizer"] += (MOMENTS + (not in_place)) * piece * master
    return held
