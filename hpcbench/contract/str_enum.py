"""Base class of enumerations whose members are strings."""

from enum import Enum


class StrEnum(str, Enum):
    """The class `enum.StrEnum`, which Python 3.10 lacks.

    A member equals its string value, and has the same hash and printed form.
    """

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # typeshed has names for its parameters, Enum has others
    __hash__ = str.__hash__
