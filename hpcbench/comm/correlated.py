"""Seeds of random rounding, and correlated rounding over the ranks that contribute to a sum.

Stochastic rounding is unbiased, but its error is sqrt(2) times the error of rounding to nearest. With correlated
rounding (DynamiQ, arXiv 2602.08923), all p contributors to a sum share one random number U per value, and contributor i
rounds up with noise (U + i / p) mod 1. Each rank's noise is still uniform, so its message remains unbiased. The noises
of one value are evenly spaced, so errors partly cancel in the sum.

Only messages that all contributors exchange directly are correlated: the sums of two-shot algorithms, and the hops of
hierarchical algorithms. Results and partial sums are rounded with the sender's own random numbers. Otherwise they would
depend on the random numbers of the values that they contain, and the sum would be biased.
"""

from hpcbench.comm.steps import PeerSpan, PlanStep

SEED_BITS = 48
"""Number of bits of a seed that select random numbers. The bits above are the offset of correlated rounding."""
_SHARED = 1 << 13
"""First number of shared seeds. A slice makes fewer seeds of its own, and seeds of slices are 2^14 apart."""


def make_seed(number: int, rank: int, size: int) -> int:
    """Return a rank's own seed. Seeds with different numbers or ranks differ."""
    return (number * size + rank) % (1 << SEED_BITS)


def make_shared_seed(first: int, step: PlanStep, part: PeerSpan, rank: int, size: int) -> int | None:
    """Return the seed of a contribution: the contributors' common random numbers, and this rank's offset.

    Parameters
    ----------
    first
        Number of the slice's first seed, which is the same on all ranks.
    step, part
        The step of a reduction, and the message to the owner of a sum.
    rank, size
        Rank of the sender, and number of ranks.

    Returns
    -------
    int or None
        None if the contributors do not all send to each other in this step.
    """
    contributors = sorted({rank, *(each.peer for each in step.sends)})
    if {each.peer for each in step.receives} != set(contributors):
        return None
    offset = (contributors.index(rank) << 16) // len(contributors)
    return offset << SEED_BITS | make_seed(first + _SHARED + step.stage, part.peer, size)
