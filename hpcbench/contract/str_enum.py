"""Enumerations whose members are words, the same in files and in messages."""

from enum import Enum


class StrEnum(str, Enum):
    """The class `enum.StrEnum`, which Python 3.10 lacks.

    A member equals its word and is hashed and printed as the word.
    """

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # typeshed has names for its parameters, Enum has others
    __hash__ = str.__hash__
