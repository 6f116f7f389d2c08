"""Registries of planted faults by name."""

from collections.abc import Callable
from contextlib import AbstractContextManager

Patch = AbstractContextManager[object]
"""A context manager that plants a fault."""
Plants = dict[str, Callable[[], Patch]]


def list_faults(*plants: Callable[[], Patch]) -> Plants:
    """Return the functions that plant faults, by name."""
    return {plant.__name__: plant for plant in plants}
