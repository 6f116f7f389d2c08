"""The only quoting there is: a value as one word of a shell script."""

import re
import shlex

_BREAKS = re.compile(r"[\x00\r\n\ud800-\udfff]")


def quote(value: object) -> str:
    """A value as one word of a shell script.

    Raises
    ------
    ValueError
        It has a newline or a NUL, which would let it out of its line, or half a character, which no file can hold.
    """
    text = str(value)
    if _BREAKS.search(text):
        raise ValueError(f"{text!r} has a line break, NUL or half a character in it: it cannot stand in a job script")
    return shlex.quote(text)


def words(value: object) -> str:
    """A value as one word, or a sequence of values as one word each: the filter ``q`` of the templates."""
    return " ".join(map(quote, value)) if isinstance(value, (list, tuple)) else quote(value)
