"""Sanitized text and drawings for HTML pages."""

import re
import unicodedata
from html import unescape
from typing import Any

from markupsafe import Markup

_KEPT = {"\n", "\t"}


def visible(text: str) -> str:
    """Replace control characters with symbols, and other unprintable characters with their code points.

    HTML cannot represent some of these characters (such as NUL), and others reverse the text direction (U+202E).
    """
    return text if text.isprintable() else "".join(map(_sign, text))


def finalize(value: Any) -> Any:
    """Apply `visible` to each string that a template prints. Markup is already sanitized."""
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
    """Style rules that replace the ``style`` attributes of a page's plots, without duplicates."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    @property
    def css(self) -> str:
        """CSS text of all rules so far."""
        return "\n".join(f".{name} {{ {rule} }}" for rule, name in self._classes.items())

    def name(self, declarations: str) -> str:
        """Return the name of the CSS class for a set of declarations."""
        return self._classes.setdefault(" ".join(declarations.split()), f"plot-{len(self._classes) + 1}")


def inline(svg: str, name: str, label: str, styles: Stylesheet) -> Markup:
    """Convert a drawing into a page element. The drawing is trusted, except for its text.

    Parameters
    ----------
    svg
        SVG from `hpcbench.present.figures`, with escaped text.
    name
        Unique name within the page, used as prefix of the drawing's ids.
    label
        Alternative text.
    styles
        Style sheet that collects the drawing's styles.
    """

    def adapt(tag: re.Match[str]) -> str:
        unique = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", _WHITE.sub("var(--paper)", tag[0]))
        return re.sub(r'\bstyle="([^"]*)"', lambda style: f'class="{styles.name(unescape(style[1]))}"', unique)

    content = _TAG.sub(adapt, _NO_DRAWING.sub("", svg[svg.index("<svg") :]))
    root = re.sub(r'\b(width|height|role|aria-label)="[^"]*"', "", content[: content.index(">")])
    attributes = Markup(' role="img" class="plot" aria-label="{}"').format(label)
    return Markup(visible(root)) + attributes + Markup(visible(content[content.index(">") :]))
