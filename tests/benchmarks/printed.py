"""Benchmarks in their tiny form, and what they print."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from stored_results import ROOT


@dataclass(frozen=True)
class Printed:
    """What a benchmark wrote to standard output."""

    lines: list[str]

    def rows(self) -> Iterator[list[str]]:
        """The cells of each line: what stands two blanks or more apart."""
        for line in self.lines:
            if line.strip():
                yield re.split(r"  +", line.strip())

    def row(self, name: str) -> list[str]:
        """The cells behind the first one, of the one line that begins so."""
        result = [cells[1:] for cells in self.rows() if cells[0] == name]
        assert len(result) == 1, f"{len(result)} rows of {name}:\n" + "\n".join(self.lines)
        return result[0]


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """With the lines as wide as in a file, and with variables of the environment."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--tiny", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | variables
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL)


def numbers(cells: list[str]) -> list[float]:
    """All of them, without their units; the test fails where one is none."""
    return [float(cell.replace(",", "").rstrip("%x")) for cell in cells]


def positive(cells: list[str], count: int) -> bool:
    """Parse `count` numbers above 0."""
    return len(cells) == count and min(numbers(cells)) > 0
