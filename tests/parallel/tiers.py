"""The cases of a cover in `make test`, and the additional ones in `make test-long`, as parameters of tests."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from cases import Comparison, select_rest

REST = "rest"
"""Argument with which a worker runs only the additional comparisons of `make test-long`."""


def list_names(suite: Callable[[], Iterable[Comparison]]) -> list[str]:
    """Return the names of the comparisons of a suite."""
    return [comparison.name for comparison in suite()]


class Tiers:
    """A suite of comparisons in two parts: those in which every value of every setting occurs, and the others.

    Attributes
    ----------
    names
        Parameters for tests; those of the second part are marked as long.
    """

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._rest = {comparison.name for comparison in select_rest(comparisons)}
        self.names: list[Any] = [
            pytest.param(comparison.name, marks=pytest.mark.long) if comparison.name in self._rest else comparison.name
            for comparison in comparisons
        ]

    def part(self, name: str) -> tuple[str, ...]:
        """Return the worker's arguments for the comparison with this name."""
        return (REST,) if name in self._rest else ()
