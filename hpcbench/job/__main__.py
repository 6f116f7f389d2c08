"""Entry point of ``python -m hpcbench.job``."""

import sys

from hpcbench.job.main import main

if __name__ == "__main__":
    sys.exit(main())
