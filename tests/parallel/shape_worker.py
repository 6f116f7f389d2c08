"""Worker that compares distributed models of architectures other than GPT with single-process models.

The worker prints one JSON line per case.
"""

import sys
from unittest.mock import patch

import parity_worker
import shape_cases
from parity_worker import compare_all
from shape_faults import FAULTS


def main(suite: str) -> None:
    with patch.object(parity_worker, "PLANTS", FAULTS):
        # one step covers every gradient and message
        compare_all(list(shape_cases.SUITES[suite]()), steps=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
