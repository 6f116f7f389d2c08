"""Entry point of earlier editable installs. It starts the interception."""

from hpcbench.programs.autoload import autoload

__all__ = ["autoload"]
