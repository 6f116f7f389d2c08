"""PipeDream's dynamic program: stages and replicas, level by level. Pure.

``A(j, m) = min over i, m' of max(A(i, m - m'), boundary(i), T(i .. j, m'))`` is the least time of the slowest stage
for the first j layers on m units. On a higher level a unit is the whole level below, cut in the best way. A stage that
does not fit into the memory of its ranks takes for ever. The number of versions of a stage is that of the micro-batches
between it and the end: ``ceil(ranks from the stage on / its own ranks)``.
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
    """Layers `first` to `stop` - 1, on so many ranks that take turns."""

    first: int
    stop: int
    replicas: int


@dataclass(frozen=True)
class PipelineCut:
    """A cut of a chain. `seconds` is the time of its slowest stage or boundary; infinite if nothing fits."""

    seconds: float
    stages: tuple[StageCut, ...]


class _Best(NamedTuple):
    seconds: float
    split: int
    units: int
    """Units of the last stage."""


_NONE = _Best(math.inf, -1, 0)
_WIDER = 1.3
"""Factor over the ideal time in the first search; its square in the second, and so on."""
_SLACK = 1 + 1e-9
"""Sums of floats differ by their order: a split is given up only if it is worse by more than that."""


class Solver:
    """Finds the best cut of a chain, if it takes no longer than it may; else none.

    Parameters
    ----------
    chain
        The layers.
    setting
        What the cut is made for.
    reach
        What fits into the memory; None without a limit.
    """

    def __init__(self, chain: LayerChain, setting: Setting, reach: Reach | None = None) -> None:
        self._chain, self._setting, self._reach = chain, setting, reach
        self._found: dict[tuple[int, int, int, int, float], tuple[float, _Best]] = {}
        """The best cut of each subproblem, beside the seconds within which it was looked for."""
        self._below = [math.prod(level.units for level in setting.levels[:k]) for k in range(len(setting.levels))]
        inner = range(1, len(chain))
        self._messages = [[0.0, *(chain.boundary(j, link, setting) for j in inner)] for link in setting.levels]

    def cut(self, most: float) -> PipelineCut:
        """The best cut over all ranks, if its slowest stage takes no more than so many seconds."""
        top = len(self._setting.levels) - 1
        units = self._setting.levels[top].units
        n = len(self._chain)
        best = self._best(top, 0, n, units, 0.0, most * _SLACK)
        if not math.isfinite(best.seconds):
            return PipelineCut(math.inf, ())
        return PipelineCut(best.seconds, tuple(self._stages(top, 0, n, units, 0.0, 1)))

    def _stages(self, level: int, i: int, j: int, units: int, behind: float, replicas: int) -> list[StageCut]:
        """The stages of a subproblem that has been solved, first to last, each with its ranks."""
        found: list[StageCut] = []
        while j > i:
            best = self._best(level, i, j, units, behind, math.inf)
            split = best.split + i
            if level == 0:
                found[:0] = [StageCut(split, j, best.units * replicas)]
            else:
                after = self._behind(level, units, best.units, behind)
                inner = self._setting.levels[level - 1].units
                found[:0] = self._stages(level - 1, split, j, inner, after, replicas * best.units)
            j, units = split, units - best.units
        return found

    def _best(self, level: int, i: int, j: int, units: int, behind: float, most: float) -> _Best:
        """The best cut of layers i to j - 1 over the first so many units of a level, if it takes no more than `most`.

        `behind` is the number of ranks behind the level's last unit, for each replica of the level. Places in the
        result count from i, because alike runs of layers share it.
        """
        i, j = self._chain.alike[i][j], j - i + self._chain.alike[i][j]
        if self._reach is None:
            behind = 0.0
        elif not level:
            behind = math.ceil(behind - 1e-9)  # which gives the same numbers of versions
        key = level, i, j, units, behind
        within, best = self._found.get(key, (0.0, _NONE))
        if best is _NONE and within < most:
            fits = self._reach is None or self._reach.first(level, j, units, self._after(level, units, behind)) <= i
            best = self._search(level, i, j, units, behind, most) if fits else _NONE
            self._found[key] = most if fits else math.inf, best
        return best if best.seconds <= most else _NONE

    def _search(self, level: int, i: int, j: int, units: int, behind: float, most: float) -> _Best:
        sums = self._chain.compute
        ranks = self._below[level]
        whole = next(iter(self._last_stages(level, range(i, i + 1), j, units, units, behind, most)), (i, math.inf))[1]
        best = _Best(whole, 0, units) if whole <= most else _NONE
        for own in range(1, units):
            before = units - own
            limit = min(best.seconds * _SLACK, most)  # no split outside of these bounds is better than the best so far
            low = bisect_left(sums, sums[j] - limit * own * ranks, i + 1, j)
            high = bisect_right(sums, sums[i] + limit * before * ranks, i + 1, j)
            for split, stage in self._last_stages(level, range(high - 1, low - 1, -1), j, own, units, behind, most):
                if stage >= best.seconds or stage > limit:
                    if level == 0:
                        break  # with more layers it only takes longer
                    continue
                message = self._messages[level][split]
                if message < best.seconds and message <= limit:
                    seconds = max(message, stage, self._best(level, i, split, before, behind, most).seconds)
                    if seconds < best.seconds:
                        best = _Best(seconds, split - i, own)
        return best if math.isfinite(best.seconds) else _NONE

    def _behind(self, level: int, units: int, own: int, behind: float) -> float:
        """Ranks behind a unit's last rank, for each of the `own` replicas that end at unit `units`."""
        return self._after(level, units, behind) / own if self._reach is not None else 0.0

    def _after(self, level: int, units: int, behind: float) -> float:
        """Ranks behind the level's first so many units."""
        return (self._setting.levels[level].units - units) * self._below[level] + behind

    def _last_stages(
        self, level: int, begins: range, j: int, own: int, units: int, behind: float, most: float
    ) -> Iterator[tuple[int, float]]:
        """Begin and seconds of stages that end before layer j; on the lowest level no more once one does not fit.

        Above it a stage that takes longer than `most` takes for ever.
        """
        chain, setting = self._chain, self._setting
        factor = setting.sync_factor(own, setting.levels[level])
        weights, end = chain.weights, chain.weights[j]
        if level:
            below, inner = self._behind(level, units, own, behind), setting.levels[level - 1].units
            for i in begins:
                sync = factor * (end - weights[i])
                if sync > most * own:
                    return  # which only grows
                yield i, max(self._best(level - 1, i, j, inner, below, most * own).seconds, sync) / own
            return
        sums, done, limit = chain.compute, chain.compute[j], setting.memory_bytes
        versions = 1
        if limit is not None:
            versions = count_versions(own, self._after(level, units, behind))
        for i in begins:
            if limit is not None and chain.memory(i, j, alive=versions, versions=versions) > limit:
                return
            yield i, max(done - sums[i], factor * (end - weights[i])) / own


def find_best_cut(chain: LayerChain, setting: Setting) -> PipelineCut:
    """The cut with the least time of its slowest stage or boundary.

    It is looked for within a little more than the computing time shared out evenly, and then within more and more:
    the less it may take, the fewer splits there are to look at.
    """
    n, ranks = len(chain), setting.ranks
    top = len(setting.levels) - 1
    reach = Reach(chain, setting) if setting.memory_bytes is not None else None
    if reach is not None and reach.first(top, n, setting.levels[top].units, 0.0):
        return PipelineCut(math.inf, ())
    messages = [chain.boundary(j, link, setting) for j in range(1, n) for link in setting.levels]
    worst = chain.seconds(0, n) + max(messages, default=0.0)
    worst += sum(chain.sync(0, n, link.units, link, setting) for link in setting.levels)
    most, wider = chain.seconds(0, n) / ranks, _WIDER
    solver = Solver(chain, setting, reach)
    while True:
        most, wider = min(most * wider, worst), wider * wider
        found = solver.cut(most)
        if math.isfinite(found.seconds) or most >= worst:
            return found


def find_even_cut(
    chain: LayerChain, setting: Setting, *, stages: int, replicas: int, versions: int | None = None
) -> PipelineCut:
    """The best cut into so many stages of as many replicas each, which is what the engine carries out.

    Stages follow each other over the slowest links; replicas are neighbours.

    Parameters
    ----------
    versions
        Versions of the weights that a stage holds; by default as many as micro-batches are under way there.
    """
    link, n = setting.levels[-1], len(chain)
    sums_link = setting.levels[0] if replicas <= setting.levels[0].units else link
    before = [math.inf] * (n + 1)
    before[0] = 0.0
    came: list[list[int]] = []
    for stage in range(stages):
        alive = stages - stage
        after, splits = [math.inf] * (n + 1), [0] * (n + 1)
        for j in range(stage + 1, n - (stages - stage - 1) + 1):
            for i in range(j - 1, stage - 1, -1):
                own = max(chain.seconds(i, j), chain.sync(i, j, replicas, sums_link, setting)) / replicas
                if own >= after[j]:
                    break  # stages only grow
                held = chain.memory(i, j, alive=alive, versions=alive if versions is None else versions)
                if setting.memory_bytes is not None and held > setting.memory_bytes:
                    break
                message = chain.boundary(i, link, setting) / replicas if stage else 0.0
                seconds = max(before[i], own, message)
                if seconds < after[j]:
                    after[j], splits[j] = seconds, i
        came.append(splits)
        before = after
    if not math.isfinite(before[n]):
        return PipelineCut(math.inf, ())
    found: list[StageCut] = []
    stop = n
    for splits in reversed(came):
        found.insert(0, StageCut(splits[stop], stop, replicas))
        stop = splits[stop]
    return PipelineCut(before[n], tuple(found))
