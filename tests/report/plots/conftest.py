"""Fixture that draws figures without writing them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpcbench.plot_style import styled
from hpcbench.present.document import Figure
from hpcbench.present.figures import drawn


@pytest.fixture
def draw() -> Iterator[Callable[[Figure | None], Any]]:
    """Function that returns the matplotlib figure of a non-empty report figure."""

    def drawing(figure: Figure | None) -> Any:
        assert figure is not None, "there is something to draw"
        return drawn(figure)

    with styled():
        yield drawing
