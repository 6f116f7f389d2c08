"""Oracles: published formulas for memory and host transfers of the ZeRO stages (arXiv 1910.02054, sections 3 and 5)."""

from collections.abc import Sequence
from fractions import Fraction


def count_published_bytes(stage: int, ranks: int) -> Fraction:
    """Return the paper's bytes per parameter in mixed precision, with half-precision gradients and K = 12."""
    unsharded = {0: 16, 1: 4, 2: 2, 3: 0}[stage]
    return unsharded + Fraction(16 - unsharded, ranks)


def count_link_bytes(
    stage: int, lengths: Sequence[int], ranks: int, *, master: int, micro_batches: int
) -> tuple[int, int]:
    """Return the bytes per step on the host link with offload: gradients to the host, and weights to the device."""
    piece = sum(lengths) // ranks if stage else sum(lengths)
    return piece * master * (micro_batches if stage >= 2 else 1), piece * master
