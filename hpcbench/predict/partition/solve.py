"""PipeDream's dynamic program: stages and replicas, level by level. Pure.

``A(j, m) = min over i, m' of max(A(i, m - m'), boundary(i), T(i .. j, m'))`` is the minimum time of the slowest stage
for the first j layers on m units. On a higher level, a unit is the entire next lower level with its best cut. The time
of a stage that does not fit into the memory of its ranks is infinite. The number of weight versions of a stage equals
the number of micro-batches between the stage and the end of the pipeline: ``ceil(ranks from the stage to the end /
ranks of the stage)``.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hpcbench.predict.partition.chain import LayerChain, Setting
from hpcbench.predict.partition.reach import Reach, count_versions


@dataclass(frozen=True)
class StageCut:
    """Layers `first` to `stop` - 1, on `replicas` ranks that take turns."""

    first: int
    stop: int
    replicas: int


@dataclass(frozen=True)
class PipelineCut:
    """A cut of a chain. `seconds` is the time of the slowest stage or boundary, or infinite if nothing fits."""

    seconds: float
    stages: tuple[StageCut, ...]


class _Best(NamedTuple):
    seconds: float
    split: int
    units: int
    """Number of units of the last stage."""


_NONE = _Best(math.inf, -1, 0)
_WIDER = 1.3
"""Ratio of the time limit to the ideal time in the first search.

The second search uses the square of this ratio, and so on.
"""
_SLACK = 1 + 1e-9
"""Maximum ratio of a split's time to the best time.

The ratio exceeds 1 because sums of floats depend on their order.
"""


class Solver:
    """Solver for the best cut of a chain within a time limit.

    Parameters
    ----------
    chain
        The layers.
    setting
        Links, codecs and memory.
    reach
        Layers that fit into the memory, or None if memory is not limited.
    """

    def __init__(self, chain: LayerChain, setting: Setting, reach: Reach | None = None) -> None:
        self._chain, self._setting, self._reach = chain, setting, reach
        self._solved: dict[tuple[int, int, int, int, float], tuple[float, _Best]] = {}
        """Limit of the search in seconds and best cut, for each subproblem."""
        self._below = [math.prod(level.units for level in setting.levels[:k]) for k in range(len(setting.levels))]
        inner = range(1, len(chain))
        self._messages = [[0.0, *(chain.time_boundary(j, link, setting) for j in inner)] for link in setting.levels]

    def cut(self, most: float) -> PipelineCut:
        """Return the best cut over all ranks, if its slowest stage takes at most `most` seconds."""
        top = len(self._setting.levels) - 1
        units = self._setting.levels[top].units
        n = len(self._chain)
        best = self._best(top, 0, n, units, 0.0, most * _SLACK)
        if not math.isfinite(best.seconds):
            return PipelineCut(math.inf, ())
        return PipelineCut(best.seconds, tuple(self._list_stages(top, 0, n, units, 0.0, 1)))

    def _list_stages(self, level: int, i: int, j: int, units: int, behind: float, replicas: int) -> list[StageCut]:
        """List the stages of a solved subproblem from first to last, with their ranks."""
        stages: list[StageCut] = []
        while j > i:
            best = self._best(level, i, j, units, behind, math.inf)
            split = best.split + i
            if level == 0:
                stages[:0] = [StageCut(split, j, best.units * replicas)]
            else:
                after = self._count_behind(level, units, behind) / best.units
                inner = self._setting.levels[level - 1].units
                stages[:0] = self._list_stages(level - 1, split, j, inner, after, replicas * best.units)
            j, units = split, units - best.units
        return stages

    def _best(self, level: int, i: int, j: int, units: int, behind: float, most: float) -> _Best:
        """Return the best cut of layers i to j - 1 over the first `units` units of a level, within `most` seconds.

        `behind` is the number of ranks, per replica of the level, in the stages after the level's last unit. Layers in
        the result are numbered from i, because equal sequences of layers share the result.
        """
        i, j = self._chain.first_equal[i][j], j - i + self._chain.first_equal[i][j]
        if self._reach is None:
            behind = 0.0
        elif not level:
            behind = math.ceil(behind - 1e-9)  # The numbers of versions stay the same.
        key = level, i, j, units, behind
        within, best = self._solved.get(key, (0.0, _NONE))
        if best is _NONE and within < most:
            fits = (
                self._reach is None
                or self._reach.find_first(level, j, units, self._count_behind(level, units, behind)) <= i
            )
            best = self._search(level, i, j, units, behind, most) if fits else _NONE
            self._solved[key] = most if fits else math.inf, best
        return best if best.seconds <= most else _NONE

    def _search(self, level: int, i: int, j: int, units: int, behind: float, most: float) -> _Best:
        sums = self._chain.compute
        ranks = self._below[level]
        single = next(iter(self._time_last(level, range(i, i + 1), j, units, units, behind, most)), (i, math.inf))[1]
        best = _Best(single, 0, units) if single <= most else _NONE
        for last in range(1, units):
            before = units - last
            limit = min(best.seconds * _SLACK, most)  # Splits outside of these bounds are not better.
            low = bisect_left(sums, sums[j] - limit * last * ranks, i + 1, j)
            high = bisect_right(sums, sums[i] + limit * before * ranks, i + 1, j)
            for split, stage in self._time_last(level, range(high - 1, low - 1, -1), j, last, units, behind, most):
                if stage >= best.seconds or stage > limit:
                    if level == 0:
                        break  # More layers take longer.
                    continue
                message = self._messages[level][split]
                if message < best.seconds and message <= limit:
                    seconds = max(message, stage, self._best(level, i, split, before, behind, most).seconds)
                    if seconds < best.seconds:
                        best = _Best(seconds, split - i, last)
        return best if math.isfinite(best.seconds) else _NONE

    def _count_behind(self, level: int, units: int, behind: float) -> float:
        """Return the number of ranks in the stages after the level's first `units` units."""
        return (self._setting.levels[level].units - units) * self._below[level] + behind

    def _time_last(
        self, level: int, begins: range, j: int, replicas: int, units: int, behind: float, most: float
    ) -> Iterator[tuple[int, float]]:
        """Yield the candidates for the last stage before layer j, each with its first layer and its time in seconds.

        On the lowest level, the iteration ends at the first stage that does not fit. On higher levels, a stage that
        takes longer than `most` has infinite time.
        """
        chain, setting = self._chain, self._setting
        factor = setting.sync_factor(replicas, setting.levels[level])
        weights, end = chain.weights, chain.weights[j]
        if level:
            below, inner = self._count_behind(level, units, behind) / replicas, setting.levels[level - 1].units
            for i in begins:
                sync = factor * (end - weights[i])
                if sync > most * replicas:
                    return  # `sync` grows with the number of layers.
                yield i, max(self._best(level - 1, i, j, inner, below, most * replicas).seconds, sync) / replicas
            return
        sums, done, limit = chain.compute, chain.compute[j], setting.memory_bytes
        versions = 1
        if limit is not None:
            versions = count_versions(replicas, self._count_behind(level, units, behind))
        for i in begins:
            if limit is not None and chain.count_memory(i, j, alive=versions, versions=versions) > limit:
                return
            yield i, max(done - sums[i], factor * (end - weights[i])) / replicas


def find_best_cut(chain: LayerChain, setting: Setting) -> PipelineCut:
    """Return the cut that minimizes the time of the slowest stage or boundary.

    The first search is limited to slightly more than the evenly divided computing time, and each further search has a
    higher limit. With a lower limit, fewer splits are possible.
    """
    n, ranks = len(chain), setting.ranks
    top = len(setting.levels) - 1
    reach = Reach(chain, setting) if setting.memory_bytes is not None else None
    if reach is not None and reach.find_first(top, n, setting.levels[top].units, 0.0):
        return PipelineCut(math.inf, ())
    messages = [chain.time_boundary(j, link, setting) for j in range(1, n) for link in setting.levels]
    worst = chain.time_layers(0, n) + max(messages, default=0.0)
    worst += sum(chain.time_sums(0, n, link.units, link, setting) for link in setting.levels)
    most, wider = chain.time_layers(0, n) / ranks, _WIDER
    solver = Solver(chain, setting, reach)
    while True:
        most, wider = min(most * wider, worst), wider * wider
        cut = solver.cut(most)
        if math.isfinite(cut.seconds) or most >= worst:
            return cut


def find_even_cut(
    chain: LayerChain, setting: Setting, *, stages: int, replicas: int, versions: int | None = None
) -> PipelineCut:
    """Return the best cut into `stages` stages of `replicas` replicas each, the form that the engine can run.

    Messages between stages use the slowest links. Replicas are neighbors.

    Parameters
    ----------
    versions
        Number of versions of the weights that a stage holds, or None for the number of its micro-batches in flight.
    """
    link, n = setting.levels[-1], len(chain)
    sums_link = setting.levels[0] if replicas <= setting.levels[0].units else link
    before = [math.inf] * (n + 1)
    before[0] = 0.0
    splits_of_stages: list[list[int]] = []
    for stage in range(stages):
        alive = stages - stage
        after, splits = [math.inf] * (n + 1), [0] * (n + 1)
        for j in range(stage + 1, n - (stages - stage - 1) + 1):
            for i in range(j - 1, stage - 1, -1):
                stage_s = max(chain.time_layers(i, j), chain.time_sums(i, j, replicas, sums_link, setting)) / replicas
                if stage_s >= after[j]:
                    break  # More layers take longer.
                held = chain.count_memory(i, j, alive=alive, versions=alive if versions is None else versions)
                if setting.memory_bytes is not None and held > setting.memory_bytes:
                    break
                message = chain.time_boundary(i, link, setting) / replicas if stage else 0.0
                seconds = max(before[i], stage_s, message)
                if seconds < after[j]:
                    after[j], splits[j] = seconds, i
        splits_of_stages.append(splits)
        before = after
    if not math.isfinite(before[n]):
        return PipelineCut(math.inf, ())
    cuts: list[StageCut] = []
    stop = n
    for splits in reversed(splits_of_stages):
        cuts.insert(0, StageCut(splits[stop], stop, replicas))
        stop = splits[stop]
    return PipelineCut(before[n], tuple(cuts))
