"""benchmarks/overlap.py trains on two hosts, with overlap and without, and says what is left to wait for."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hpcbench.testing.hosts import why_not

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "overlap.py"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_tiny(need: Callable[[str | None], None]) -> None:
    need(why_not())
    said = run("--tiny")
    assert re.match(r"# command: python benchmarks/overlap\.py --tiny\n# revision: .+\n# machine: .+\n", said)
    rows = [line.split() for line in said.splitlines() if re.match(r" ?(baseline|zhybrid-16-8) ", line)]
    assert [row[:2] for row in rows] == [
        [scheme, overlap] for scheme in ("baseline", "zhybrid-16-8") for overlap in ("off", "on")
    ]
    for row in rows:
        step, exposed = float(row[2]), float(row[3])
        assert 0 < exposed < step, row  # what a rank waits for is a part of its step
    assert "every run's replicas agree" in said


def test_wrong_arguments() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--turns", "0"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 2 and "--turns 0" in done.stderr and "Traceback" not in done.stderr
