"""How far a log comes, read from its last lines."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hpcbench.contract import step_line
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.event.base import BEGIN, parse_object
from hpcbench.contract.event.life import End, Start
from hpcbench.contract.stamp import is_stamped

_STEP = "step "
_OURS = (_STEP, BEGIN)
_OF_LIFE = (Start.begin(), End.begin())
_TAIL = 1 << 16
_HEAD = 1 << 12


@dataclass(frozen=True)
class Ending:
    """How far a run's log comes. Lines are counted from 1. A value is None where the log does not give it."""

    path: Path
    lines: int
    begun: bool = False
    """Whether the log holds a start event or a step."""
    state: str | None = None
    """State that the end event gives."""
    reason: str = ""
    end_line: int | None = None
    """Line of the end event; None where there is no such event."""
    step: int | None = None
    """Number of the last step in the log."""
    steps: int | None = None
    """Number of steps that were planned."""
    loss: float | None = None
    """The loss of the last step."""
    step_line: int | None = None
    cut: bool = False
    """Whether the last line of the run is incomplete."""
    own: bool = True
    """Whether hpcbench wrote the log. A log of another framework has no end event."""
    program: bool = False
    """Whether a program of others wrote its lines, between our events: what its steps are, only its dialect knows."""
    diverged: int | None = None
    """The first step whose loss is known to be NaN or infinite."""

    def where(self, line: int | None = None) -> str:
        """``file:line`` of a line; of the last line if none is given."""
        return f"{self.path}:{self.lines if line is None else line}"


def read_ending(path: Path, *, numbered: bool = True) -> Ending | None:
    """Read how far the log comes; None where there is no such file.

    Parameters
    ----------
    numbered
        Whether lines get their numbers. The whole file must be read for that. The lines of a log that ends in
        ``completed`` are never counted, because no message names one.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            raw = stream.read()
            whole = len(raw) == size
            pieces = raw.decode("utf-8", "replace").split("\n")
            done = any(line.startswith(End.begin()) and '"state": "completed"' in line for line in pieces[-9:-1])
            ends = _line_ends(stream) if numbered and not whole and not done else len(pieces) - 1
    except OSError:
        return None
    began = whole or any(line.startswith(Start.begin()) for line in head.decode("utf-8", "replace").split("\n"))
    return _ending(path, pieces if whole else ["", *pieces[1:]], ends - len(pieces) + 2, began=began and not whole)


def _ending(path: Path, pieces: list[str], first: int, *, began: bool) -> Ending:
    """Read the ending from the last lines of a log. The last piece is the text behind the last line end.

    Parameters
    ----------
    first
        Line number of the first piece.
    began
        Whether a start event stands before these lines.
    """
    found: dict[str, Any] = {"begun": began}
    cut = pieces[-1].startswith(_OURS)
    looked = cut
    for line, text in zip(range(first + len(pieces) - 2, first - 1, -1), reversed(pieces[:-1]), strict=True):
        text = text.strip()
        if not text.startswith(_OURS):
            found["program"] = found.get("program", False) or is_stamped(text)
            continue
        # Thousands of lines may stand here: of the steps only the last one matters.
        if looked and not text.startswith(_OF_LIFE) and ("step" in found or not text.startswith(_STEP)):
            continue
        step = step_line.parse_step(text, line) if text.startswith(_STEP) else None
        data = parse_object(text, line) if text.startswith(BEGIN) else None
        if not looked and (step or data) is not None:
            cut, looked = isinstance(step or data, DamagedLine), True
        if isinstance(step, step_line.Step) and "step" not in found:
            found |= {"begun": True, "step": step.step, "steps": step.steps, "loss": step.loss, "step_line": line}
        name = data["event"] if isinstance(data, dict) else None
        if isinstance(data, dict) and name == End.NAME and "end_line" not in found:
            end = End.read(data)
            found |= {"end_line": line, "state": end.state, "reason": end.reason or ""}
        if name == Start.NAME:  # what stands above was of an attempt before
            found["begun"] = True
            break
    loss = found.get("loss")
    diverged = found["step"] if loss is not None and not math.isfinite(loss) else None
    lines = first + len(pieces) - 2 + bool(pieces[-1])
    return Ending(path, lines, cut=cut, diverged=diverged, **found)


def _line_ends(stream: BinaryIO) -> int:
    stream.seek(0)
    return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))


def read_tail(path: Path, size: int = _TAIL) -> list[str]:
    """Return the lines in the last `size` bytes of a file; no lines where there is no file."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - size))
            return stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
