"""Tests of the statistics benchmark with `--tiny`, which has the same entry point and output."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "report_statistics.py"


def test_the_tiny_form_prints_all_tables_and_the_goals() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--tiny"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["# command", "# revision", "# machine"]
    first = ("whole", "looks", "one", "noise", "beside")
    heads = [word for line in lines if (word := line.partition(" ")[0]) in first]
    assert heads == ["whole", "whole", "looks", "one", "noise", "noise", "noise", "beside"]
    nine = re.search(r"^nothing differs +9 +3( +[\d.]+){3} +([\d.]+)$", done.stdout, re.MULTILINE)
    power = done.stdout.partition("whose truth is found")[2]
    alone = re.search(r"^gains of 1.3 to 1.6 +1 +5 +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", power, re.MULTILINE)
    assert nine is not None and alone is not None
    # One report of nine cells and two of one cell, with fixed seeds.
    assert float(nine[2]) == 0 and [float(share) for share in alone.groups()] == [100, 100, 100, 100]
    assert re.search(r"^normal +large +3( +[\d.]+){6}$", done.stdout, re.MULTILINE)
    dominated = re.search(r"^normal +8 +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.MULTILINE)
    assert dominated is not None
    # 30 studies with fixed seeds. Each dominated scheme is found, and one in twenty of the others, plus chance.
    result, equal, others = map(float, dominated.groups())
    assert result >= 95 and equal <= others <= 10
    gains = re.search(r"^normal +3 +([\d.]+) +([\d.]+)$", done.stdout, re.MULTILINE)
    assert gains is not None
    shown, falsely = map(float, gains.groups())
    assert falsely <= 10 and shown > falsely
    assert "the dominated scheme is called beaten in" in done.stdout and "intervals cover" in done.stdout
