"""Names beside points, where they cover neither each other nor a point."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.plot_style import SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_PLACES = [(5, 0, "left"), (-5, 0, "right"), (5, 7, "left"), (5, -7, "left"), (-5, 7, "right"), (-5, -7, "right")]
_PLACES += [(0, dy, "center") for dy in (9, -9, 17, -17, 25, -25, 33, -33)]
"""Where a label may stand beside its point, in points of type; the first that is free is taken."""


def place_labels(axes: "Axes", points: Sequence[tuple[str, float, float]], taken: "Sequence[Bbox]" = ()) -> None:
    """Write each point's name where there is room.

    Parameters
    ----------
    axes
        Whose limits are final.
    points
        Name and place in data.
    taken
        Boxes, in pixels, that no name may cover.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    canvas = FigureCanvasAgg(axes.figure)  # type: ignore[arg-type]
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    boxes = list(taken)
    for _, x, y in points:
        across, up = axes.transData.transform((x, y))
        boxes.append(Bbox.from_extents(across - 4, up - 4, across + 4, up + 4))
    for name, x, y in points:
        for place, (dx, dy, side) in enumerate(_PLACES):
            text = axes.annotate(
                name, (x, y), (dx, dy), textcoords="offset points", ha=side, va="center", fontsize=SMALL, zorder=4
            )
            box = text.get_window_extent(renderer)
            inside = axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
            free = inside and axes.bbox.containsy(box.y0) and axes.bbox.containsy(box.y1)
            if (free and not box.count_overlaps(boxes)) or place == len(_PLACES) - 1:
                boxes.append(box)
                break
            text.remove()
