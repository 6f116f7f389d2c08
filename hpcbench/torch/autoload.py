"""The name by which the entry point of an earlier editable installation starts the interception."""

from hpcbench.programs.autoload import autoload

__all__ = ["autoload"]
