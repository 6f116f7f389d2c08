"""Conversion of figures to SVG for pages, which can recolor the drawing, and to PNG for print.

Output is reproducible byte for byte.
"""

import io
import re
import warnings
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.plot_style import DPI, INK, WIDTH, need_matplotlib, styled
from hpcbench.present.document import Document, Figure


def svg(figure: Figure) -> str:
    """Return an ``svg`` element for a page or a separate file.

    The background is transparent, and labels are text elements. Lines in the ink color use the page's text color
    (``currentColor``). Unreferenced ids are removed. Referenced ids contain the figure's name, so that a page can
    contain several figures.
    """
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    element = _written(figure, "svg", transparent=True, metadata=metadata).decode()
    element = element[element.index("<svg") :].replace(INK, "currentColor")
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", element))
    used_ids = {name for pair in used for name in pair if name}
    element = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used_ids else "", element)
    label = escape(f"{figure.title}. {figure.caption}".strip())
    return element.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def png(figure: Figure) -> bytes:
    """Return a PNG image at 200 dpi on a white background."""
    about = {"Title": figure.title, "Description": figure.caption, "Software": None}
    return _written(figure, "png", dpi=DPI, metadata=about)


def write(document: Document, directory: Path) -> list[Path]:
    """Write each figure of a report as ``NAME.svg`` and ``NAME.png``. Repeated names are numbered.

    Raises
    ------
    UserError
        matplotlib is not installed, or a file cannot be written.
    """
    figures = [block for chapter in document.chapters for block in chapter.blocks if isinstance(block, Figure)]
    seen: Counter[str] = Counter()
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            seen[figure.name] += 1
            name = figure.name if seen[figure.name] == 1 else f"{figure.name}-{seen[figure.name]}"
            for suffix, content in (("svg", svg(figure).encode()), ("png", png(figure))):
                paths.append(directory / f"{name}.{suffix}")
                paths[-1].write_bytes(content)
    except OSError as error:
        raise UserError(f"--plots {make_printable(str(directory))}: cannot be written: {error.strerror}") from None
    return paths


def drawn(figure: Figure) -> Any:
    """Return the matplotlib figure. Call this function and write the figure within `styled`."""
    from matplotlib.figure import Figure as Canvas

    fig = Canvas(figsize=(WIDTH, 2.4), layout="constrained")
    figure.draw(fig)
    return fig


def _written(figure: Figure, kind: str, **options: Any) -> bytes:
    need_matplotlib("figures of a report")
    content = io.BytesIO()
    with styled(salt=figure.name), warnings.catch_warnings():
        # Names may contain glyphs that the font lacks. Browsers fall back to other fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        drawn(figure).savefig(content, format=kind, **options)
    return content.getvalue()
