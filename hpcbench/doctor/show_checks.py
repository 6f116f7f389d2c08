"""Output of findings: a table on a terminal, lines in a log, and JSON for programs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.files import now, write_json
from hpcbench.doctor.check import Check, Health

_STYLES = {Health.OK: "green", Health.MISSING: "bold red", Health.UNKNOWN: "magenta"}


def show(checks: Sequence[Check]) -> None:
    """Print the findings and a conclusion."""
    if sys.stdout.isatty():
        _table(checks)
    else:
        for check in checks:
            print(f"{check.health.value:8}{check.name}: {check.fact}{f' -> {check.remedy}' if check.remedy else ''}")
    failed = [check.name for check in checks if check.failed]
    print(f"required, but failed or unknown: {', '.join(failed)}" if failed else "all required checks passed")


def write(checks: Sequence[Check], path: Path) -> None:
    """Write the findings as JSON."""
    lines = [
        {"name": c.name, "health": c.health.value, "fact": c.fact, "remedy": c.remedy, "needed": c.needed}
        for c in checks
    ]
    write_json(path, {"time": now(), "checks": lines, "failed": [check.name for check in checks if check.failed]})


def _table(checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        text = Text(check.fact)
        if check.remedy:
            text.append(f"\n{check.remedy}", style="italic")
        table.add_row(Text(check.health.value, style=_STYLES[check.health]), Text(check.name), text)
    Console().print(table)
