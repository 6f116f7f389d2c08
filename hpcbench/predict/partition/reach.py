"""Which layers fit into the memory of some ranks at all, however long they take. Pure.

A stage that gets more ranks holds no more versions, and one that gives up layers needs no more memory. So of all stages
behind a place only how far they reach towards the first layer counts, and a cut fits if stages can reach it.
"""

import math
from bisect import bisect_left

from hpcbench.predict.partition.chain import LayerChain, Setting


def count_versions(own: int, behind: float) -> int:
    """Versions that a stage holds: micro-batches under way between it and the end.

    Parameters
    ----------
    own
        Its ranks.
    behind
        Ranks behind it.
    """
    return math.ceil((behind + own) / own - 1e-9)


class Reach:
    """Finds the first layer that the stages of some units can reach.

    Parameters
    ----------
    chain
        The layers.
    setting
        What the cut is made for, with a limit of memory.
    """

    def __init__(self, chain: LayerChain, setting: Setting) -> None:
        self._chain, self._limit = chain, setting.memory_bytes
        self._levels = setting.levels
        self._below = [math.prod(level.units for level in setting.levels[:k]) for k in range(len(setting.levels))]
        self._first: dict[tuple[int, int, int, float], int] = {}
        self._longest: dict[tuple[int, int], int] = {}

    def first(self, level: int, j: int, units: int, behind: float) -> int:
        """The least i for which layers i to j - 1 fit on so many units of a level; j if none does.

        Parameters
        ----------
        level, j, units
            The place of the layers.
        behind
            Ranks behind the last one of these units, for each replica of the level.
        """
        key = level, j, units, behind
        if key not in self._first:
            reached = [j]
            for used in range(1, units + 1):
                reached.append(
                    min(self._stage(level, reached[used - own], own, used, behind) for own in range(1, used + 1))
                )
            # units that are left over go to the first stage
            self._first[key] = min(reached)
        return self._first[key]

    def _stage(self, level: int, j: int, own: int, used: int, behind: float) -> int:
        """How far the stage reaches that ends before layer j, on `own` units of the `used` last ones."""
        if j == 0:
            return 0
        after = (used - own) * self._below[level] + behind
        if level:
            return self.first(level - 1, j, self._levels[level - 1].units, after / own)
        versions = count_versions(own, after)
        if (j, versions) not in self._longest:
            self._longest[j, versions] = bisect_left(range(j), True, key=lambda i: self._fits(i, j, versions))
        return self._longest[j, versions]

    def _fits(self, i: int, j: int, versions: int) -> bool:
        return self._limit is None or self._chain.memory(i, j, alive=versions, versions=versions) <= self._limit
