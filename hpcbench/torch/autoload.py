"""Entry point of earlier editable installs. The entry point starts the interception of collective calls."""

from hpcbench.programs.autoload import autoload

__all__ = ["autoload"]
