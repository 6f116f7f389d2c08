"""Entry point of ``python -m hpcbench``."""

from hpcbench.cli import main

main()
