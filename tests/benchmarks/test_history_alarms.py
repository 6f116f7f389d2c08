"""Test of the benchmark of `hpcbench history` in its tiny form."""

from collections.abc import Callable

from printed import Printed


def test_false_alarms_and_power_are_measured(tiny: Callable[..., Printed]) -> None:
    lines = [line for line in tiny("history_alarms.py").lines if line.endswith(" %")]
    shares = [float(line.rpartition(": ")[2].removesuffix(" %")) for line in lines]
    assert len(shares) == 5 and shares[0] <= 20 and min(shares[2:]) >= 75, lines
