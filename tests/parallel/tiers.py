"""Test parameters for the cases of `make test`, and for the additional cases of `make test-long`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from cases import Comparison, select_rest

REST = "rest"
"""Worker argument for running only the additional comparisons of `make test-long`."""


def list_names(suite: Callable[[], Iterable[Comparison]]) -> list[str]:
    """Return the names of a suite's comparisons."""
    return [comparison.name for comparison in suite()]


class Tiers:
    """A suite of comparisons in two parts. The first part covers every value of every setting.

    Attributes
    ----------
    names
        Parameters for tests. Comparisons of the second part are marked as long.
    """

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._rest = {comparison.name for comparison in select_rest(comparisons)}
        self.names: list[Any] = [
            pytest.param(comparison.name, marks=pytest.mark.long) if comparison.name in self._rest else comparison.name
            for comparison in comparisons
        ]

    def part(self, name: str) -> tuple[str, ...]:
        """Return the worker's arguments for a comparison."""
        return (REST,) if name in self._rest else ()
