"""Trains small models on tensor grids beside one process; prints a JSON line a case."""

import sys
from collections.abc import Callable
from unittest.mock import patch

import faults
import grid_cases
import parity_worker
from cases import Comparison
from grid_faults import planted


def main(suite: str) -> None:
    comparisons: list[Comparison] = list(grid_cases.SUITES[suite]())
    scaled: Callable[[list[Comparison]], None] = parity_worker.compare_all
    with patch.object(parity_worker, "planted", planted):
        scaled(comparisons)


if __name__ == "__main__":
    assert not set(grid_cases.FAULTY) & set(faults.FAULTS)
    main(*sys.argv[1:])
