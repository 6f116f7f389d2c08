"""Benchmarks in their tiny form, and their output."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from stored_results import ROOT


@dataclass(frozen=True)
class Printed:
    """Standard output of a benchmark."""

    lines: list[str]

    def rows(self) -> Iterator[list[str]]:
        """Cells of each line, separated by two or more spaces."""
        for line in self.lines:
            if line.strip():
                yield re.split(r"  +", line.strip())

    def row(self, name: str) -> list[str]:
        """Return the cells after the first one, in the only line that begins with `first`."""
        result = [cells[1:] for cells in self.rows() if cells[0] == name]
        assert len(result) == 1, f"{len(result)} rows of {name}:\n" + "\n".join(self.lines)
        return result[0]


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script with additional environment variables.

    Output lines are as long as when the output is redirected to a file.
    """
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--tiny", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | variables
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL)


def numbers(cells: list[str]) -> list[float]:
    """Return all numbers without their units. Fail if a cell is not a number."""
    return [float(cell.replace(",", "").rstrip("%x")) for cell in cells]


def positive(cells: list[str], count: int) -> bool:
    """Parse `count` positive numbers."""
    return len(cells) == count and min(numbers(cells)) > 0
