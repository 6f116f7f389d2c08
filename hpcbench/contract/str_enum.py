"""Words that stand for themselves in files and messages."""

from enum import Enum


class StrEnum(str, Enum):
    """As `enum.StrEnum`, which Python 3.10 lacks: a member equals its word, and is hashed and printed as the word."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # typeshed has names for its parameters, Enum has others
    __hash__ = str.__hash__
