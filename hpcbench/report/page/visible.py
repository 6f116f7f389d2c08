"""Text as a reader of a page may trust it: what would be invisible, or move what stands beside it, shows itself."""

import unicodedata
from typing import Any

from markupsafe import Markup

_KEPT = {"\n", "\t"}


def visible(words: str) -> str:
    """`words` with a sign in place of each control character, and the code point of whatever else does not print.

    HTML has no way to write some of them (NUL), and others turn the direction of what follows (U+202E).
    """
    return words if words.isprintable() else "".join(map(_sign, words))


def finalize(value: Any) -> Any:
    """Make each string that a template prints `visible`; what is markup already was made so before."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _sign(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"
