"""Test of the tuner benchmark in its tiny form."""

from collections.abc import Callable

from printed import Printed


def test_the_tuner_is_measured(tiny: Callable[..., Printed]) -> None:
    text = "\n".join(tiny("tuner.py").lines)
    assert "Searches" in text and "usual" in text and "noisy" in text
