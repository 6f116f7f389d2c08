"""The program ``python -m hpcbench``."""

from hpcbench.cli import main

main()
