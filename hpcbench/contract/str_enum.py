"""Words that stand for themselves in files and messages."""

from enum import Enum


class Word(str, Enum):
    """A member is its word: it equals the word, and is hashed and printed as the word."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # typeshed has names for its parameters, Enum has others
    __hash__ = str.__hash__
