"""Greedy search for a covering array: a few cases that contain every relevant combination of settings.

Most faults in a parallel engine are caused by one setting or by an interaction of two, and few by three (Kuhn et al.,
IEEE TSE 30(6), 2004). Therefore, the cases cover all pairs of values, and all tuples of the axes that the caller names.
"""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np

Case = dict[str, Any]


def every_case(axes: dict[str, Sequence[Any]], valid: Callable[[Case], bool]) -> list[Case]:
    """Return all valid combinations. The last axis varies fastest.

    `valid` must also accept partial cases, which contain only the first axes.
    """
    cases: list[Case] = [{}]
    for name, values in axes.items():
        cases = [case for part, value in product(cases, values) if valid(case := {**part, name: value})]
    return cases


def cover(
    cases: Sequence[Case], together: Sequence[Sequence[str]] = (), pairs: Sequence[Sequence[str]] | None = None
) -> list[Case]:
    """Select cases greedily until they cover all combinations of values that occur in `cases`.

    Parameters
    ----------
    cases
        Cases with the same keys.
    together
        Keys for which all combinations of values must be covered, in addition to pairs.
    pairs
        Pairs of keys to cover, or None for all.

    Returns
    -------
    Selected cases in the order of selection. Ties are resolved in favor of the first case.
    """
    names = list(cases[0])
    groups = [*(combinations(names, 2) if pairs is None else pairs), *together]
    columns = {name: _codes([case[name] for case in cases]) for name in names}
    numbered = [_numbered([columns[name] for name in group]) for group in groups]
    missing = [np.ones(numbers.max() + 1, dtype=bool) for numbers in numbered]
    taken = []
    while True:
        gain = sum(left[numbers].astype(int) for left, numbers in zip(missing, numbered, strict=True))
        best = int(np.argmax(gain))
        if not gain[best]:
            return taken
        taken.append(cases[best])
        for left, numbers in zip(missing, numbered, strict=True):
            left[numbers[best]] = False


def cover_sample(
    cases: Sequence[Case],
    free: dict[str, Sequence[Any]],
    fills: int,
    *,
    seed: int = 7,
    together: Sequence[Sequence[str]] = (),
    pairs: Sequence[tuple[str, str]] | None = None,
) -> list[Case]:
    """Cover the combinations of values. Each case is completed with `fills` random draws of `free`."""
    chance, choices = Random(seed), every_case(free, lambda case: True)
    pool = [{**case, **fill} for case in cases for fill in chance.sample(choices, fills)]
    return cover(pool, together, pairs)


def list_combinations(
    group: Sequence[str],
    cases: Sequence[Case],
    axes: dict[str, Sequence[Any]],
    free: dict[str, Sequence[Any]],
) -> set[tuple[Any, ...]]:
    """List the value combinations of a group of settings over all cases of `axes` and all values of `free`."""
    fixed, chosen = [name for name in group if name in axes], [free[name] for name in group if name in free]
    return {(*(case[name] for name in fixed), *values) for case in cases for values in product(*chosen)}


def select_new(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that contain a value not seen in an earlier case."""
    covered: set[tuple[str, Any]] = set()
    taken = []
    for case in cases:
        if new := set(case.items()) - covered:
            covered |= new
            taken.append(case)
    return taken


def _codes(values: Sequence[Any]) -> np.ndarray:
    """Encode the values as integers, shape (cases,)."""
    codes: dict[Any, int] = {}
    return np.array([codes.setdefault(value, len(codes)) for value in values])


def _numbered(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Encode combinations of column values as integers, shape (cases,)."""
    numbers = columns[0]
    for column in columns[1:]:
        numbers = numbers * (column.max() + 1) + column
    return numbers
