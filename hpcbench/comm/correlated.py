"""Correlated rounding over the ranks that contribute to a sum.

Stochastic rounding has no bias, but its error is sqrt(2) times the error of rounding to nearest. With correlated
rounding (DynamiQ, arXiv 2602.08923), the p ranks whose encoded values are added share one random number U per value,
and contributor i rounds up with the noise (U + i / p) mod 1. The noise of each rank is still uniform, so no message has
a bias. The noises of one value are evenly spaced, so errors partly cancel in the sum.

Random numbers are shared by the contributions to the same elements in one stage of a reduction. Stages have different
random numbers. Otherwise, partial sums would be rounded with the random numbers of the values that they contain, and
the total would have a bias. Results of reductions are rounded with the sender's own random numbers.

In recursive doubling, several ranks encode the same partial sum for different receivers. These ranks need the same seed
with stochastic rounding, too. Otherwise, replicas would differ.
"""

from hpcbench.comm.steps import Combine, PeerSpan, PlanStep, find_doubling_place
from hpcbench.comm.topology import Topology

SEED_BITS = 48
"""Number of bits of a seed that select random numbers. The bits above are the offset of correlated rounding."""
_SHARED = 1 << 13
"""First number of shared seeds. A slice makes fewer seeds of its own, and seeds of slices are 2^14 apart."""
_SPREAD = 0x9E3779B97F4B
"""Odd factor that keeps the seeds of a call at least 2^27 apart, so that the start of a span can be added."""


def make_shared_seed(first: int, step: PlanStep, part: PeerSpan, rank: int, topology: Topology) -> int:
    """Return the seed of a contribution: the common random numbers of the contributors, and the offset of this rank.

    With stochastic rounding, the offset selects other random numbers.

    Parameters
    ----------
    first
        Number of the slice's first seed, which is the same on all ranks.
    step, part
        The step of a reduction, and the message to the owner of a sum.
    rank
        Rank of the sender.
    topology
        Node of each rank.
    """
    index, count = find_place(step, part, rank, topology)
    random = ((first + _SHARED + step.stage) * _SPREAD + part.span.start) % (1 << SEED_BITS)
    return (index << 16) // count << SEED_BITS | random


def find_place(step: PlanStep, part: PeerSpan, rank: int, topology: Topology) -> tuple[int, int]:
    """Return the index of a contribution to a sum, and the number of contributions.

    The owner's contribution is exact and does not count. If nodes add their values at the same time, the contributions
    to all sums of the same elements count. Ranks with the same partial sum have the same index.
    """
    if step.combine is Combine.SUM_DECODED:
        level = step.stage - 1
        return find_doubling_place(rank, topology.ranks) >> level, 1 << (topology.ranks.bit_length() - 1 - level)
    senders = sorted({rank, *(each.peer for each in step.sends)})
    node = topology.node_of[rank]
    if {each.peer for each in step.receives} != set(senders):
        return rank, topology.ranks  # not all members exchange parts, for example in a reduction to a root
    within = topology.nodes > 1 and tuple(senders) == topology.members[node]
    nodes, number = (topology.nodes, node) if within else (1, 0)
    place = (senders.index(rank) - senders.index(part.peer) - 1) % len(senders)
    return place * nodes + number, (len(senders) - 1) * nodes
