"""Entry point of earlier editable installs. It starts the interception of collective calls."""

from hpcbench.programs.autoload import autoload

__all__ = ["autoload"]
