"""Layers that fit into the memory of a given number of ranks, regardless of their computing time. Pure.

Adding ranks to a stage never increases the number of weight versions that it holds, and removing layers never increases
its memory use. For the stages after a boundary, it is therefore sufficient to find the first layer that these stages
can reach: a cut fits if its stages reach layer 0.
"""

import math
from bisect import bisect_left

from hpcbench.predict.partition.chain import LayerChain, Setting


def count_versions(ranks: int, behind: float) -> int:
    """Return the number of weight versions on a stage: the micro-batches between the stage and the pipeline's end.

    Parameters
    ----------
    ranks
        Number of ranks in the stage.
    behind
        Number of ranks in later stages.
    """
    return math.ceil((behind + ranks) / ranks - 1e-9)


class Reach:
    """Search for the first layer that stages on a given number of units can reach.

    Parameters
    ----------
    chain
        The layers.
    setting
        Links, codecs and memory. The memory must be limited.
    """

    def __init__(self, chain: LayerChain, setting: Setting) -> None:
        assert setting.memory_bytes is not None
        self._chain, self._limit = chain, setting.memory_bytes
        self._levels = setting.levels
        self._below = [math.prod(level.units for level in setting.levels[:k]) for k in range(len(setting.levels))]
        self._first: dict[tuple[int, int, int, float], int] = {}
        self._longest: dict[tuple[int, int], int] = {}

    def find_first(self, level: int, j: int, units: int, behind: float) -> int:
        """Return the smallest i for which layers i to j - 1 fit on `units` units of a level, or j if no layer fits.

        Parameters
        ----------
        level, j, units
            Level, end of the layers, and number of units.
        behind
            Number of ranks, per replica of the level, in the stages after the last of these units.
        """
        key = level, j, units, behind
        if key not in self._first:
            reached = [j]
            for used in range(1, units + 1):
                reached.append(
                    min(self._extend(level, reached[used - last], last, used, behind) for last in range(1, used + 1))
                )
            # Unused units can be added to the first stage.
            self._first[key] = min(reached)
        return self._first[key]

    def _extend(self, level: int, j: int, units: int, used: int, behind: float) -> int:
        """Return the first layer of a stage that ends before layer j, on the first `units` of the last `used` units."""
        if j == 0:
            return 0
        after = (used - units) * self._below[level] + behind
        if level:
            return self.find_first(level - 1, j, self._levels[level - 1].units, after / units)
        versions = count_versions(units, after)
        if (j, versions) not in self._longest:
            self._longest[j, versions] = bisect_left(range(j), True, key=lambda i: self._fits(i, j, versions))
        return self._longest[j, versions]

    def _fits(self, i: int, j: int, versions: int) -> bool:
        return self._chain.count_memory(i, j, alive=versions, versions=versions) <= self._limit
