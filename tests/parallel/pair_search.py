"""Search for a small set of runs that covers every valid pair of values.

`python tests/parallel/pair_search.py` writes the runs to pairs.json. The search takes minutes.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random

from labels import Labels, completed, fewest_ranks, is_near, ranks_of
from schema_axes import AXES

Value = tuple[str, str]
"""An axis name and the label of a value."""
Pair = tuple[Value, Value]

LIST = Path(__file__).with_name("pairs.json")
ROOM = 2
"""Maximum number of ranks of a case."""

TRIES = 4
"""Number of candidates per case. The candidate that covers the most new pairs is selected."""


def values() -> list[Value]:
    """Return the values that are valid when all other axes have their first value."""
    return [(axis, label) for axis in AXES for label in AXES[axis].values if ranks_of({axis: label})]


@cache
def accepted() -> dict[Pair, int]:
    """Return the valid pairs of values and their numbers of ranks, with all other axes at their first value."""
    pairs = (pair for pair in combinations(values(), 2) if pair[0][0] != pair[1][0])
    return {pair: ranks for pair in pairs if (ranks := fewest_ranks(dict(pair)))}


def pairs_of(case: Labels) -> Iterator[Pair]:
    """Yield the pairs of values in a case that has a label for every axis."""
    return combinations([(axis, case[axis]) for axis in AXES], 2)


def search(pairs: dict[Pair, int], *, seed: int) -> list[Labels]:
    """Return cases that cover the pairs (AETG, doi 10.1109/32.605761), in descending order of ranks.

    If both values of a pair give the results of one process up to rounding, the pair is covered by a case in which all
    values do.
    """
    chance, cases = Random(seed), []
    for exact in (True, False):
        missing = {pair for pair in pairs if exact != any(is_near(*value) for value in pair)}
        while missing:
            first = max(missing, key=lambda pair: (pairs[pair], pair))
            most = max(pairs[first], ROOM)
            tries = [_grown(dict(first), pairs, missing, most=most, exact=exact, chance=chance) for _ in range(TRIES)]
            cases.append(max(tries, key=lambda case: len(missing & set(pairs_of(case)))))
            missing -= set(pairs_of(cases[-1]))
    return cases


def _grown(
    case: Labels, pairs: dict[Pair, int], missing: set[Pair], *, most: int, exact: bool, chance: Random
) -> Labels:
    """Complete a case. Each label is chosen so that the case covers as many missing pairs as possible."""
    left = [axis for axis in AXES if axis not in case]
    while left:
        offers = []
        for new in ((axis, label) for axis in left for label in AXES[axis].values):
            beside = [_pair(new, value) for value in case.items()]
            if not (exact and is_near(*new)) and all(pair in pairs for pair in beside):
                offers.append((sum(pair in missing for pair in beside), chance.random(), *new))
        for _, _, axis, label in sorted(offers, reverse=True):
            larger = {**case, axis: label}
            ranks = ranks_of(larger) if "dp" in larger else fewest_ranks(larger)
            if ranks and ranks <= most:
                case = larger
                left.remove(axis)
                break
        else:
            raise ValueError(f"no value of {left} fits {case}")
    return case


_PLACES = {axis: place for place, axis in enumerate(AXES)}


def _pair(first: Value, other: Value) -> Pair:
    return (first, other) if _PLACES[first[0]] < _PLACES[other[0]] else (other, first)


def store(cases: Sequence[Labels]) -> None:
    """Write one case per line. Labels that `completed` adds are omitted."""
    lines = []
    for case in cases:
        labels = dict(case)
        for axis in AXES:
            others = {name: label for name, label in labels.items() if name != axis}
            labels = others if completed(others) == case else labels
        lines.append(json.dumps({axis: labels[axis] for axis in AXES if axis in labels}))
    LIST.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def stored() -> list[Labels]:
    """Read the stored cases, and complete their labels."""
    return [completed(labels) for labels in json.loads(LIST.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    store(search(accepted(), seed=1))
