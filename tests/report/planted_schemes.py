"""Synthetic submissions of schemes with given times and losses, and runs that fail or diverge."""

import json
from pathlib import Path

from planted_results import Planted, write_marker

SIZE = "gpt-tiny 0.8 M parameters, 12 steps"
"""Model and size of the synthetic runs, as in a headline."""
NOISE = (1.00, 1.01, 0.99, 1.005)
"""Machine variation that all schemes of a repeat share."""
JITTER = (0.0, 0.002, -0.002, 0.001)
"""Machine variation of each run."""


def planted(
    schemes: dict[str, tuple[float, float]], repeats: int = 3, cell: dict[str, int] | None = None
) -> list[Planted]:
    """Return runs with the given (seconds, loss) of each scheme, plus small noise."""
    return [
        Planted(
            scheme, k + 1, seconds * NOISE[k] * (1 + JITTER[(k + i) % 4]), loss + JITTER[(k + i) % 4], 0.5, cell or {}
        )
        for k in range(repeats)
        for i, (scheme, (seconds, loss)) in enumerate(schemes.items())
    ]


def fail(root: Path, run: str, status: int, keep: int = 9) -> None:
    """Cut a run's log in the middle."""
    path = root / "runs" / run / "log.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:keep]))
    write_marker(path.parent, f"j{int(run[1]):04}-r{run[1]}", status)


def diverge(root: Path, run: str, step: int) -> None:
    """Change a run's loss to NaN."""
    path = root / "runs" / run / "log.txt"
    lines = path.read_text().splitlines(keepends=True)[: 3 + step]
    before, after = lines[-1].split("| loss ")
    lines[-1] = before + "| loss nan |" + after.split("|", 1)[1]
    lines.append(json.dumps({"event": "end", "state": "nan", "steps": step, "reason": "loss is nan"}) + "\n")
    path.write_text("".join(lines))
    write_marker(path.parent, f"j{int(run[1]):04}-r{run[1]}", 1)
