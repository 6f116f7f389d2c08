"""The benchmark of the tuner in its tiny form."""

from collections.abc import Callable
from typing import Any


def test_the_tuner_is_measured(tiny: Callable[..., Any]) -> None:
    text = tiny("tuner.py").text
    assert "6 landscapes" in text and "usual" in text
