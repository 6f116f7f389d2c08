"""Reader for the end of a log: the last step and the end event."""

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
    """The end of a run's log. Line numbers start at 1. A value is None if the log does not contain it."""

    path: Path
    lines: int
    begun: bool = False
    """Whether the log contains a start event or a step."""
    state: str | None = None
    """State reported by the end event."""
    reason: str = ""
    end_line: int | None = None
    """Line number of the end event, or None if there is no such event."""
    step: int | None = None
    """Last step number in the log."""
    steps: int | None = None
    """Number of planned steps."""
    loss: float | None = None
    """Loss of the last step."""
    step_line: int | None = None
    cut: bool = False
    """Whether the last line of the run is incomplete."""
    from_hpcbench: bool = True
    """Whether hpcbench wrote the log. Logs of other frameworks contain no end event."""
    program: bool = False
    """Whether a user's program wrote lines between hpcbench's events.

    The program's steps can be read only with the dialect of its log.
    """
    diverged: int | None = None
    """First step with an infinite or NaN loss, if it is in the last lines."""

    def where(self, line: int | None = None) -> str:
        """Return ``file:line`` for a line, by default the last line."""
        return f"{self.path}:{self.lines if line is None else line}"


def read_ending(path: Path, *, numbered: bool = True) -> Ending | None:
    """Read the end of a log, or return None if the file does not exist.

    Parameters
    ----------
    numbered
        Whether to determine line numbers, which requires reading the whole file. Lines of a log that ends in
        ``completed`` are never counted, because messages about completed runs contain no line numbers.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            raw = stream.read()
            is_complete = len(raw) == size
            pieces = raw.decode("utf-8", "replace").split("\n")
            done = any(line.startswith(End.begin()) and '"state": "completed"' in line for line in pieces[-9:-1])
            ends = _line_ends(stream) if numbered and not is_complete and not done else len(pieces) - 1
    except OSError:
        return None
    began = is_complete or any(line.startswith(Start.begin()) for line in head.decode("utf-8", "replace").split("\n"))
    return _ending(
        path, pieces if is_complete else ["", *pieces[1:]], ends - len(pieces) + 2, began=began and not is_complete
    )


def _ending(path: Path, pieces: list[str], first: int, *, began: bool) -> Ending:
    """Parse the last lines of a log. The last item is the text after the last line ending.

    Parameters
    ----------
    first
        Line number of the first item.
    began
        Whether a start event precedes these lines.
    """
    fields: dict[str, Any] = {"begun": began}
    cut = pieces[-1].startswith(_OURS)
    looked = cut
    for line, text in zip(range(first + len(pieces) - 2, first - 1, -1), reversed(pieces[:-1]), strict=True):
        text = text.strip()
        if not text.startswith(_OURS):
            fields["program"] = fields.get("program", False) or is_stamped(text)
            continue
        # There may be thousands of step lines. Only the last one is needed.
        if looked and not text.startswith(_OF_LIFE) and ("step" in fields or not text.startswith(_STEP)):
            continue
        step = step_line.parse_step(text, line) if text.startswith(_STEP) else None
        data = parse_object(text, line) if text.startswith(BEGIN) else None
        if not looked and (step or data) is not None:
            cut, looked = isinstance(step or data, DamagedLine), True
        if isinstance(step, step_line.Step) and "step" not in fields:
            fields |= {"begun": True, "step": step.step, "steps": step.steps, "loss": step.loss, "step_line": line}
        name = data["event"] if isinstance(data, dict) else None
        if isinstance(data, dict) and name == End.NAME and "end_line" not in fields:
            end = End.read(data)
            fields |= {"end_line": line, "state": end.state, "reason": end.reason or ""}
        if name == Start.NAME:  # preceding lines belong to an earlier attempt
            fields["begun"] = True
            break
    loss = fields.get("loss")
    diverged = fields["step"] if loss is not None and not math.isfinite(loss) else None
    lines = first + len(pieces) - 2 + bool(pieces[-1])
    return Ending(path, lines, cut=cut, diverged=diverged, **fields)


def _line_ends(stream: BinaryIO) -> int:
    stream.seek(0)
    return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))


def read_tail(path: Path) -> list[str]:
    """Return the lines in the last 64 KiB of a file, or an empty list if the file does not exist."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL))
            return stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
