"""Plot labels: truncation to a width, and placement next to points without overlap."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.plot_style import INK, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

Named = tuple[str, float, float]
"""A name and the data coordinates of its point."""
Ends = tuple[float, float]

_ROUND = [(5, 0, "left"), (-5, 0, "right"), (5, 7, "left"), (5, -7, "left"), (-5, 7, "right"), (-5, -7, "right")]
_ABOVE = [(0, dy, "center") for dy in (9, -9, 17, -17, 26, -26, 35, -35)]
_FAR = [
    (dx, dy, side)
    for dx, side in ((16, "left"), (-16, "right"), (40, "left"), (-40, "right"), (70, "left"), (-70, "right"))
    for dy in (0, 10, -10, 18, -18, 26, -26, 34, -34, 44, -44, 54, -54, 64, -64)
]
_PLACES = [*_ROUND, *_ABOVE, *_FAR]
"""Offsets of a label from its point, in typographic points. The first free position is used."""
_LEADER = {"arrowstyle": "-", "color": INK, "alpha": 0.5, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}


def fitted(text: str, width: float, size: float = SMALL) -> str:
    """Truncate text to at most `width` points in a font of `size` points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size)

    def wide(part: str) -> bool:
        return bool(text_to_path.get_text_width_height_descent(part, font, False)[0] > width)

    if not wide(text):
        return text
    end = next(k for k in range(len(text), -1, -1) if k == 0 or not wide(text[:k] + "…"))
    return text[:end] + "…"


def place_labels(
    figure: "Figure", named: "Sequence[tuple[Axes, Sequence[Named]]]", bars: Sequence[tuple[Ends, Ends]] = ()
) -> None:
    """Label each point at a free position.

    A label that is closer to a different point is connected to its own point by a line.

    Parameters
    ----------
    figure
        Figure that is complete except for the labels.
    named
        Labeled points of each axes.
    bars
        End points of lines, in the data coordinates of all axes. Labels cover a line only if no other position is free.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    pixels = figure.dpi / 72
    for axes, points in named:
        frame = axes.bbox
        centres = [axes.transData.transform((x, y)) for _, x, y in points]
        taken = [Bbox.from_bounds(x - 3 * pixels, y - 3 * pixels, 6 * pixels, 6 * pixels) for x, y in centres]
        taken += [
            Bbox.from_extents(*axes.transData.transform([(xs[0], ys[0]), (xs[1], ys[1])]).ravel()).padded(pixels)
            for xs, ys in bars
        ]
        for (name, x, y), centre in zip(points, centres, strict=True):
            text = axes.annotate(
                name, (x, y), (0, 0), textcoords="offset points", va="center", fontsize=SMALL, zorder=4
            )
            text.set_in_layout(False)
            size = text.get_window_extent(renderer)
            height = 0.86 * size.height  # without most of the spacing between lines
            best, least = _PLACES[0], 1000
            for place in _PLACES:
                box = _box(centre, place, size.width, height, pixels)
                inside = all(frame.contains(*corner) for corner in (box.min, box.max))
                near = not _is_far(place) and any(
                    _distance(box, other) < _distance(box, centre) + 2 * pixels
                    for other in centres
                    if math.dist(other, centre) > 1
                )
                cost = int(box.count_overlaps(taken)) + 10 * near + 100 * (not inside)
                if cost < least:
                    best, least = place, cost
                if cost == 0:
                    break
            taken.append(_box(centre, best, size.width, height, pixels))
            text.remove()
            axes.annotate(
                name,
                (x, y),
                best[:2],
                textcoords="offset points",
                ha=best[2],
                va="center",
                fontsize=SMALL,
                zorder=4,
                arrowprops={**_LEADER} if _is_far(best) else None,
            ).set_in_layout(False)


def _is_far(place: tuple[int, int, str]) -> bool:
    """Return whether a label at this position needs a line to its point."""
    return abs(place[0]) > 5 or abs(place[1]) > 9


def _distance(box: "Bbox", point: Any) -> float:
    """Return the distance of a point from a box, or 0 inside the box."""
    across = max(box.x0 - point[0], point[0] - box.x1, 0.0)
    along = max(box.y0 - point[1], point[1] - box.y1, 0.0)
    return math.hypot(across, along)


def _box(centre: Any, place: tuple[int, int, str], width: float, height: float, pixels: float) -> "Bbox":
    """Return the bounding box of a label at a position, in pixels."""
    from matplotlib.transforms import Bbox

    dx, dy, side = place
    left = centre[0] + dx * pixels - {"left": 0.0, "center": width / 2, "right": width}[side]
    return Bbox.from_bounds(left, centre[1] + dy * pixels - height / 2, width, height)
