"""Entry point of earlier editable installations, which starts the interception."""

from hpcbench.programs.autoload import autoload

__all__ = ["autoload"]
