"""Entry point of ``python -m hpcbench.program``, kept for job scripts that are still in a queue."""

import sys

from hpcbench.programs.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
