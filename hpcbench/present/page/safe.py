"""Makes foreign content harmless: a text shows all its characters, and an SVG is only a drawing."""

import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

_KEPT = {"\n", "\t"}


def visible(words: str) -> str:
    """The text with a sign for each control character, and the code point of each other character that does not print.

    HTML cannot write some of them (NUL), and others turn the direction of the following text (U+202E).
    """
    return words if words.isprintable() else "".join(map(_sign, words))


def finalize(value: Any) -> Any:
    """Make each string that a template prints `visible`. Markup was made so before."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _sign(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_ELEMENTS = {
    *("svg", "g", "defs", "use", "clipPath", "pattern", "image", "text", "tspan"),
    *("path", "rect", "circle", "ellipse", "line", "polyline", "polygon"),
}
_DECLARATIONS = re.compile(r"[-\w\s#.,:;%()'\"+]*")
_REFERENCE = re.compile(r"url\(#([-\w]+)\)")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WHITE = re.compile(r"#fff(?:fff)?\b|\bwhite\b", re.IGNORECASE)


class Stylesheet:
    """Style rules for the plots of a page, in place of ``style`` attributes. Each set of declarations is there once."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    @property
    def css(self) -> str:
        """All rules so far."""
        return "\n".join(f".{name} {{ {rule} }}" for rule, name in self._classes.items())

    def name(self, declarations: str) -> str:
        """Name of the class for some declarations.

        Raises
        ------
        ValueError
            They hold characters that no plot needs and that might end the style sheet.
        """
        if not _DECLARATIONS.fullmatch(declarations):
            raise ValueError(f"an SVG has the style {declarations!r}")
        rule = _on_paper(" ".join(declarations.split()))
        return self._classes.setdefault(rule, f"plot-{len(self._classes) + 1}")


def inline(svg: str, name: str, label: str, styles: Stylesheet) -> Markup:
    """Make a drawing an element of a page.

    Parameters
    ----------
    svg
        The drawing from matplotlib, with ``currentColor`` for its ink.
    name
        Name that is unique in the page. The ids within the drawing begin with it.
    label
        Description for readers who cannot see the drawing.
    styles
        Style sheet that takes its styles.

    Raises
    ------
    ValueError
        The text is no SVG.
    """
    root = ElementTree.fromstring(_NO_XML.sub("\ufffd", svg))
    if root.tag != f"{_SVG}svg":
        raise ValueError(f"not an SVG: its root is {root.tag}")
    _prune(root)
    for element in root.iter():
        element.attrib = dict(_attributes(element, name, styles))
        element.text, element.tail = visible(element.text or ""), visible(element.tail or "")
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.attrib.update({"role": "img", "aria-label": label, "class": "plot"})
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _prune(element: ElementTree.Element) -> None:
    """Remove everything that is no drawing: styles, metadata, scripts."""
    for child in list(element):
        if child.tag.removeprefix(_SVG) not in _ELEMENTS:
            element.remove(child)
        else:
            _prune(child)
    element.tag = element.tag.removeprefix(_SVG)


def _attributes(element: ElementTree.Element, name: str, styles: Stylesheet) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        if key == "style":
            yield "class", styles.name(_REFERENCE.sub(rf"url(#{name}-\1)", value))
        elif key == "id":
            yield key, f"{name}-{value}"
        elif key in (_LINK, "href") and value.startswith("#"):
            yield "href", f"#{name}-{value[1:]}"
        elif key in (_LINK, "href") and value.startswith("data:image/png;base64,"):
            yield "href", value
        elif not key.startswith(("{", "on")) and "href" not in key:
            yield key, _on_paper(_REFERENCE.sub(rf"url(#{name}-\1)", value))


def _on_paper(words: str) -> str:
    """Replace white by the page's own background."""
    return _WHITE.sub("var(--paper)", words)
