"""Quoting of values as words of a shell script."""

import re
import shlex

_BREAKS = re.compile(r"[\x00\r\n\ud800-\udfff]")


def quote(value: object) -> str:
    """Quote a value as one word of a shell script.

    Raises
    ------
    ValueError
        It has a line break or a NUL, which cannot be quoted, or an unpaired surrogate, which no file can contain.
    """
    text = str(value)
    if _BREAKS.search(text):
        raise ValueError(
            f"{text!r} contains a line break, a NUL or an unpaired surrogate: it cannot be written into a job script"
        )
    return shlex.quote(text)


def quote_words(value: object) -> str:
    """Quote a value as one word, or a sequence as one word per value. This is the filter ``q`` of the templates."""
    return " ".join(map(quote, value)) if isinstance(value, (list, tuple)) else quote(value)
