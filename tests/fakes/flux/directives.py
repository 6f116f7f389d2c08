"""Submission directives of a Flux batch script, such as ``#flux: -N4``.

Sources: Flux RFC 36. All directives have the same sentinel, which is the tag and the text before it. No directive may
follow a line without the sentinel.
"""

import re
import shlex

_LINE = re.compile(r"(?P<sentinel>(?P<prefix>[^\w]*)(?:flux|FLUX):)(?P<rest>.*)")


def read_directives(script: str) -> list[str]:
    """Return the arguments of all directives.

    Raises
    ------
    ValueError
        The directives violate the RFC. The error message begins with the line.
    """
    arguments: list[str] = []
    sentinel = prefix = ""
    closed = 0
    for number, line in enumerate(script.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if not match:
            if sentinel and not closed and line.strip() and not line.startswith(prefix.rstrip()):
                closed = number - 1
            continue
        if closed:
            raise ValueError(f"line {number}: orphan 'flux:' detected: directives disabled after line {closed}")
        if sentinel and match["sentinel"] != sentinel:
            raise ValueError(f"line {number}: sentinel changed from '{sentinel}' to '{match['sentinel']}'")
        sentinel, prefix = match["sentinel"], match["prefix"]
        arguments += _split_words(match["rest"], number)
    return arguments


def _split_words(text: str, number: int) -> list[str]:
    try:
        arguments = shlex.split(text, comments=True)
    except ValueError as error:
        raise ValueError(f"line {number}: {text.strip()}: {error}") from None
    if arguments and not arguments[0].startswith("-"):
        raise ValueError(f"line {number}: Unknown directive: {text.strip()}")
    return arguments
