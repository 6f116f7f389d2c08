"""Shell quoting of values."""

import re
import shlex

_BREAKS = re.compile(r"[\x00\r\n\ud800-\udfff]")


def quote(value: object) -> str:
    """Quote a value as one shell word.

    Raises
    ------
    ValueError
        The value contains a line break, a NUL character, or an unpaired surrogate, which cannot be encoded.
    """
    text = str(value)
    if _BREAKS.search(text):
        raise ValueError(
            f"{text!r} contains a line break, a NUL or an unpaired surrogate: it cannot be written into a job script"
        )
    return shlex.quote(text)


def quote_words(value: object) -> str:
    """Quote a value as one word, or a sequence as one word per element. This function is the template filter ``q``."""
    return " ".join(map(quote, value)) if isinstance(value, (list, tuple)) else quote(value)
