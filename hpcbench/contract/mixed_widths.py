"""Mixed widths of gradients: 2, 4 or 8 bits for each super-group of a message, under a budget (arXiv 2602.08923).

The budget determines the number of super-groups of each width, so the sizes of all messages are known in advance. Only
the choice of the super-groups depends on the gradients.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hpcbench.codecs import spec
from hpcbench.contract.training import Train

SUPER_GROUP = 256
"""Number of values that share a width."""
STATISTIC_BYTES = 4
"""Bytes of the fp32 norm of a super-group, which ranks exchange to choose widths."""
WIDE_SHARE, WIDE_SLOPE = 1 / 8, 3 / 16
"""Share of 8-bit super-groups at a budget that equals the codec's size, and its slope per bit of the budget.

Fitted to the shares with the least error on sampled gradients of a GPT, for budgets from 3.5 to 5 bits and both block
sizes.
"""


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
        return (
            self.narrow * SUPER_GROUP,
            self.middle * SUPER_GROUP + self.remainder,
            self.wide * SUPER_GROUP,
        )


def name_codecs(codec: str) -> tuple[str, str, str]:
    """Return the codecs with 2, 4 and 8 bits, given the 4-bit codec of a rule.

    The 2-bit codec has the same blocks. Both other codecs have the same rounding.
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
    statistics = 2 * 8 * STATISTIC_BYTES / SUPER_GROUP
    if not least + statistics <= bits <= most + statistics:
        return (
            f"mixed_bits {bits:g} is not between {least + statistics:g} and {most + statistics:g}, the bits per value "
            "if all values have 2 or 8 bits, with scales and norms: change it"
        )
    return None


def count_widths(elements: int, codec: str, bits: float, *, scattered: bool) -> WidthCounts | None:
    """Return the number of super-groups of each width for a piece, or None without a complete super-group.

    Parameters
    ----------
    elements
        Number of values of the piece.
    codec, bits
        Codec of the rule, and its budget in bits per value. The budget includes scales and the exchanged norms.
    scattered
        Whether sums are reduce-scattered. An all-reduce of norms then needs twice their bytes in the budget.
    """
    groups, remainder = divmod(elements, SUPER_GROUP)
    if not groups:
        return None
    narrow, middle, wide = _list_sizes(codec)
    budget = int(groups * (bits * SUPER_GROUP / 8 - STATISTIC_BYTES * (2 if scattered else 1)))
    spare = budget - groups * narrow
    share = WIDE_SHARE + WIDE_SLOPE * 8 * (budget / groups - middle) / SUPER_GROUP
    wides = max(0, min(groups, int(groups * share), spare // (wide - narrow)))
    spare -= wides * (wide - narrow)
    middles = min(groups - wides, spare // (middle - narrow))
    if wides + middles == groups:
        more = min(middles, (spare - middles * (middle - narrow)) // (wide - middle))
        middles, wides = middles - more, wides + more
    return WidthCounts(groups - wides - middles, middles, wides, remainder)


def find_width_misfit(bits: Sequence[float], train: Train) -> str | None:
    """Return why a run whose rules have these budgets cannot send gradients with mixed widths, or None if it can."""
    if not any(bits):
        return None
    what = "mixed_bits splits gradients by width"
    if train.optimizer == "onebit-adam":
        return f"{what}, but the momenta of 1-bit Adam replace gradients: use optimizer adamw"
    if train.prune is not None:
        return f"{what}, but train.prune removes values from messages: leave one of the two out"
    if train.sync != "all-reduce":
        return f"{what}, but sync {train.sync} sends shards to servers: use all-reduce"
    return None


def _list_sizes(codec: str) -> tuple[int, int, int]:
    """Return the encoded bytes of a super-group with 2, 4 and 8 bits."""
    block = int(spec.parse(codec).parameter.split("/")[0])
    scales = SUPER_GROUP // block + 2  # one byte per block, and an fp16 maximum
    return SUPER_GROUP // 4 + scales, SUPER_GROUP // 2 + scales, SUPER_GROUP + 4
