"""Worker that compares small context-parallel models to models in one process.

The worker prints one JSON line per case.
"""

import sys
from unittest.mock import patch

import context_cases
import faults
import parity_worker
from context_faults import FAULTS
from parity_worker import WORLD, compare_all, meet


def main(suite: str) -> None:
    chosen = list(context_cases.SUITES[suite]()) if WORLD.rank == 0 else None  # the search takes seconds
    meet(WORLD)
    with patch.object(parity_worker, "PLANTS", FAULTS):
        # one step covers every gradient and message; more steps are expensive on each layout
        compare_all(WORLD.bcast(chosen), steps=1)
        if suite == "others":
            compare_all(list(context_cases.stepped_contexts()), steps=2)


if __name__ == "__main__":
    assert not set(context_cases.FAULTY) & set(faults.FAULTS)
    main(*sys.argv[1:])
