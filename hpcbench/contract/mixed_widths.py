"""Mixed widths of gradients: 2, 4 or 8 bits for each super-group of a message, under a budget (arXiv 2602.08923)."""

from dataclasses import dataclass
from typing import NamedTuple

from hpcbench.codecs import spec

SUPER_GROUP = 256
"""Number of values that share a width."""
LEVEL_BYTES = 1
"""Bytes of the norm of a super-group, which ranks exchange to choose widths."""


class WidthCounts(NamedTuple):
    """Number of super-groups of each width in one piece, and the values after the last complete super-group."""

    narrow: int
    middle: int
    wide: int
    remainder: int

    @property
    def groups(self) -> int:
        """Number of super-groups."""
        return self.narrow + self.middle + self.wide

    @property
    def elements(self) -> tuple[int, int, int]:
        """Number of values of each width, in the order of `name_codecs`. The 4-bit message carries the remainder."""
        return self.narrow * SUPER_GROUP, self.middle * SUPER_GROUP + self.remainder, self.wide * SUPER_GROUP


@dataclass(frozen=True)
class WidthBudget:
    """Bytes that the super-groups of a piece may take in total."""

    groups: int
    """Number of super-groups."""
    remainder: int
    """Number of values after the last complete super-group, which are sent with 4 bits."""
    spare: int
    """Bytes of the budget that remain if all super-groups have 2 bits."""
    middle_extra: int
    """Additional bytes of a super-group with 4 bits, compared with one with 2 bits."""
    wide_extra: int
    """Additional bytes of a super-group with 8 bits, compared with one with 2 bits."""
    wide_guess: float
    """Typical share of super-groups with 8 bits."""

    def fill(self, wide: int) -> WidthCounts:
        """Return the counts with `wide` super-groups of 8 bits, and with as many of 4 bits as the budget allows."""
        middle = min(self.groups - wide, (self.spare - wide * self.wide_extra) // self.middle_extra)
        return WidthCounts(self.groups - wide - middle, middle, wide, self.remainder)

    def guess(self) -> WidthCounts:
        """Return typical counts.

        Only predictions use these counts, because a run chooses the counts according to its gradients.
        """
        return self.fill(min(self.groups, self.spare // self.wide_extra, int(self.groups * self.wide_guess)))


def name_codecs(codec: str) -> tuple[str, str, str]:
    """Return the codecs with 2, 4 and 8 bits, given the 4-bit codec of a rule.

    The 2-bit codec has the same block size. The 2-bit and 8-bit codecs round in the same way.
    """
    layout, *options = spec.parse(codec).parameter.split(":")
    rounding = "".join(f":{option}" for option in options if option != "nonuniform")
    return f"int2:{layout}{rounding}", codec, f"int8:{SUPER_GROUP}{rounding}"


def explain_wrong_budget(codec: str, bits: float) -> str | None:
    """Return why a rule's codec cannot have mixed widths with this budget, or None if it can."""
    parsed = spec.parse(codec)
    if parsed.family != "int4" or parsed.rotation or f"/{SUPER_GROUP}" not in parsed.parameter:
        return (
            f"mixed_bits sends some values with 2 or 8 bits instead of 4, but the codec is {codec}: use int4:16/256 or "
            "int4:32/256, also with :nonuniform"
        )
    least, _, most = (8 * nbytes / SUPER_GROUP for nbytes in _list_sizes(codec))
    norms = 2 * 8 * LEVEL_BYTES / SUPER_GROUP
    if not least + norms <= bits <= most + norms:
        return (
            f"mixed_bits {bits:g} is not between {least + norms:g} and {most + norms:g}, the bits per value "
            "if all values have 2 or 8 bits, with scales and norms: change it"
        )
    return None


def make_budget(elements: int, codec: str, bits: float, *, scattered: bool) -> WidthBudget | None:
    """Return the budget of a piece, or None if the piece has no complete super-group.

    Parameters
    ----------
    elements
        Number of values of the piece.
    codec, bits
        Codec of the rule, and its budget in bits per value. The budget includes scales and the exchanged norms.
    scattered
        Whether sums are reduce-scattered. If so, the all-reduce of the norms takes twice their size from the budget.
    """
    groups, remainder = divmod(elements, SUPER_GROUP)
    if not groups:
        return None
    narrow, middle, wide = _list_sizes(codec)
    budget = int(groups * (bits * SUPER_GROUP / 8 - LEVEL_BYTES * (2 if scattered else 1)))
    share = 1 / 8 + 3 / 16 * (bits - 8 * middle / SUPER_GROUP)  # a rough fit to a tiny GPT: only predictions use it
    return WidthBudget(groups, remainder, budget - groups * narrow, middle - narrow, wide - narrow, max(0.0, share))


def _list_sizes(codec: str) -> tuple[int, int, int]:
    """Return the encoded bytes of a super-group with 2, 4 and 8 bits."""
    block = int(spec.parse(codec).parameter.split("/")[0])
    scales = SUPER_GROUP // block + 2  # one byte per block, and an fp16 maximum
    return SUPER_GROUP // 4 + scales, SUPER_GROUP // 2 + scales, SUPER_GROUP + 4
