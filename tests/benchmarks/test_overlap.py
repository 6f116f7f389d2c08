"""Tests of benchmarks/overlap.py, which trains on two hosts with and without overlap and prints the exposed time."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.testing.hosts import why_not

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "overlap.py"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
def test_tiny(need: Callable[[str | None], None]) -> None:
    need(why_not())
    output = run("--tiny")
    assert re.match(r"# command: python benchmarks/overlap\.py --tiny\n# revision: .+\n# machine: .+\n", output)
    lines = [line.strip() for line in output.splitlines() if re.match(r" ?(baseline|zhybrid-16-8)  ", line)]
    rows = [re.split(r" {2,}", line) for line in lines]
    assert [row[:2] for row in rows] == [
        [scheme, overlap] for scheme in ("baseline", "zhybrid-16-8") for overlap in ("off", "on")
    ]
    for _, _, step, exposed, _ in rows:
        # the exposed time is a part of the step
        assert 0 < float(exposed.split()[0]) < float(step.split()[0]), lines
    for scheme in ("baseline", "zhybrid-16-8"):
        assert re.search(
            rf"^{scheme}: with overlap [0-9.]+ \([0-9.]+ to [0-9.]+\) times as fast .* 2 pairs\)", output, re.MULTILINE
        )
    assert "every run's replicas agree" in output


def test_wrong_arguments() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--turns", "0"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 2 and "--turns 0" in done.stderr and "Traceback" not in done.stderr
