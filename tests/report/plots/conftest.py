"""Draws figures without writing them, to look at what stands in them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpcbench.plot_style import styled
from hpcbench.present.document import Figure
from hpcbench.present.figures import drawn


@pytest.fixture
def draw() -> Iterator[Callable[[Figure | None], Any]]:
    """Gives the matplotlib figure of a figure that has something to show."""

    def drawing(figure: Figure | None) -> Any:
        assert figure is not None, "there is something to draw"
        return drawn(figure)

    with styled():
        yield drawing
