"""Worker that compares small models on tensor grids with one process. The worker prints one JSON line per case."""

import sys
from unittest.mock import patch

import faults
import grid_cases
import parity_worker
from cases import FEWER_STEPS, STEPS, Comparison
from grid_faults import FAULTS


def main(suite: str) -> None:
    comparisons: list[Comparison] = list(grid_cases.SUITES[suite]())
    with patch.object(parity_worker, "PLANTS", FAULTS):
        parity_worker.compare_all(comparisons, STEPS if suite in ("grids", "more_grids") else FEWER_STEPS)


if __name__ == "__main__":
    assert not set(grid_cases.FAULTY) & set(faults.FAULTS)
    main(*sys.argv[1:])
