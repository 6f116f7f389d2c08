"""Text that shows all its characters, and drawings without styles of their own."""

import re
import unicodedata
from html import unescape
from typing import Any

from markupsafe import Markup

_KEPT = {"\n", "\t"}


def visible(text: str) -> str:
    """Replace each control character by a sign, and each other unprintable character by its code point.

    HTML cannot write some of them (NUL), and others turn the direction of the following text (U+202E).
    """
    return text if text.isprintable() else "".join(map(_sign, text))


def finalize(value: Any) -> Any:
    """Make each string that a template prints `visible`. Markup has passed through `visible` before."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _sign(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


_WHITE = re.compile(r"#fff(?:fff)?\b|\bwhite\b", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_NO_DRAWING = re.compile(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", re.DOTALL)


class Stylesheet:
    """Style rules for the plots of a page, in place of ``style`` attributes. Each set of declarations is there once."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    @property
    def css(self) -> str:
        """All rules so far."""
        return "\n".join(f".{name} {{ {rule} }}" for rule, name in self._classes.items())

    def name(self, declarations: str) -> str:
        """Return the name of the class for some declarations."""
        return self._classes.setdefault(" ".join(declarations.split()), f"plot-{len(self._classes) + 1}")


def inline(svg: str, name: str, label: str, styles: Stylesheet) -> Markup:
    """Make a drawing an element of a page. The drawing is trusted, except for the texts in it.

    Parameters
    ----------
    svg
        The drawing from `hpcbench.present.figures`, whose text is escaped.
    name
        Name that is unique in the page. The ids within the drawing begin with it.
    label
        Description for readers who cannot see the drawing.
    styles
        Style sheet that takes its styles.
    """

    def adapt(tag: re.Match[str]) -> str:
        unique = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", _WHITE.sub("var(--paper)", tag[0]))
        return re.sub(r'\bstyle="([^"]*)"', lambda style: f'class="{styles.name(unescape(style[1]))}"', unique)

    content = _TAG.sub(adapt, _NO_DRAWING.sub("", svg[svg.index("<svg") :]))
    root = re.sub(r'\b(width|height|role|aria-label)="[^"]*"', "", content[: content.index(">")])
    attributes = Markup(' role="img" class="plot" aria-label="{}"').format(label)
    return Markup(visible(root)) + attributes + Markup(visible(content[content.index(">") :]))
