"""Functions that several benchmarks share: starting ranks, tables, and result files."""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from provenance import provenance
from rich.table import Table


def run_ranks(ranks: int) -> list[dict[str, Any]]:
    """Start this script on ranks of this machine with ``--worker``, and return the JSON lines that they print.

    Raises
    ------
    SystemExit
        The ranks failed.
    """
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    command = [mpiexec, "-n", str(ranks), "-bind-to", "none", sys.executable, *sys.argv, "--worker"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{Path(sys.argv[0]).stem}: the ranks ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def make_table(
    *headings: str, left: Collection[str] = (), title: str | None = None, spaced: bool = False, bold: bool = False
) -> Table:
    """Make a table without a frame.

    Parameters
    ----------
    left
        Headings of left-aligned columns. All other columns are right-aligned.
    spaced
        Whether columns are separated by two spaces instead of one.
    bold
        Whether headings are bold.
    """
    more: dict[str, Any] = {"padding": (0, 2, 0, 0)} if spaced else {}
    if bold:
        more["header_style"] = "bold"
    table = Table(title=title, box=None, pad_edge=False, **more)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def write_results(path: Path | None, script: Path, content: dict[str, Any]) -> None:
    """Write results with their provenance to a JSON file, if a path is given."""
    if path is not None:
        document = {"provenance": provenance(script), **content}
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
