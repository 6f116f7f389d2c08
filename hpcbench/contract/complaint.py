"""Launcher messages: the first complaint in a file, or the last useful line."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hpcbench.contract.labels import split_label
from hpcbench.contract.stamp import strip_stamp
from hpcbench.contract.text import make_printable

_LONGEST = 1 << 16
_MOST = 200
"""Maximum number of lines that are searched for the first complaint."""
_JOINED = 3
"""Maximum number of lines that are joined into one sentence."""

# Lines that do not explain a failure: rulers, warnings, and counts that launchers print at the end.
_RULER = re.compile(r"[\W_]*")
_DASHES = re.compile(r"-{20,}")
"""Rulers that Open MPI prints above and below a message. The first sentence of the message describes the problem."""
_WRAPPED = 50
"""Minimum length of a line that counts as wrapped, outside messages between rulers."""
_WARNING = re.compile(
    r"(?:\S+:\s*)?warning\b|.*\b\w*warning: |A high-performance Open MPI |[IW][0-9]{4} ", re.IGNORECASE
)
_ASIDE = re.compile(r"WARNING|Primary job +terminated|\w+ detected that one or more processes exited")
"""First words of Open MPI paragraphs that do not name a cause."""
_PROGRAM = re.compile(r"\S+: ")
_NOISE = re.compile(
    rf"{_RULER.pattern}$|=|YOUR APPLICATION|This typically|Please see"
    r"|Abort\(|Traceback |During handling|The above exception"
    r"|srun: (?!fatal: |error: )|srun: error: \S+: tasks? \S+ (?:Exited with|Terminated|Killed)"
    r"|slurmstepd(?:-\S+)?: error: \*\*\*"
)
_HYDRA_CALL = re.compile(r"\[(?:mpiexec|proxy)\S*@[^\]]*\] (?:\w+ \([^)]*\): )?")
"""Function name that MPICH's launcher prints before its message."""
_COMPLAINS = re.compile(
    r"error|fatal|fail|cannot|can't|could ?n[o']t|unable|not found|no such|denied|not enough|not allowed|detected"
    r"|invalid|illegal|refus|unknown|unrecogni|not recogni|must|missing|abort|disallow|exceed",
    re.IGNORECASE,
)
_CANNOT_LOAD = re.compile(
    r"can ?not (load|create|find).*(pmi|mpi)|could ?n[o']t (load|find).*plugin|invalid mpi (plugin )?type",
    re.IGNORECASE,
)
"""Launcher complaints about a wrong PMI or MPI plugin.

Harmless messages of the plugin may appear before and after these complaints.
"""


@dataclass(frozen=True)
class OutputLine:
    """A line of a run's output."""

    number: int
    """Line number in the file, starting at 1."""
    place: int
    """Index of the line among all lines of its rank, including empty lines."""
    source: str
    """Label of the rank that wrote the line, as returned by `split_label`."""
    text: str


@dataclass(frozen=True)
class Complaint:
    """A launcher message, and the line on which it begins."""

    text: str
    line: int

    @property
    def complains(self) -> bool:
        """Whether the message reports a problem."""
        return bool(_COMPLAINS.search(self.text))


def read_lines(path: Path) -> Iterator[OutputLine]:
    """Yield the nonempty lines of launchers and libraries. A missing file yields no lines."""
    places: dict[str, int] = {}
    try:
        with path.open("rb") as stream:
            number = 0
            fresh = True
            while raw := stream.readline(_LONGEST):
                number += fresh
                raw = strip_stamp(raw)[1] if fresh else raw
                # Step lines and events make up most of a log, but do not explain a failure.
                if fresh and not raw.startswith((b"step ", b"{")):
                    source, text = split_label(raw.decode("utf-8", "replace").strip())
                    places[source] = places.get(source, 0) + 1
                    if text:
                        yield OutputLine(number, places[source], source, text)
                fresh = raw.endswith(b"\n")
    except OSError:
        return


def find_first_complaint(path: Path) -> Complaint | None:
    """Return the first line with a complaint. If no line contains a complaint, return the first useful line.

    Wrapped sentences are joined.
    """
    by_source: dict[str, list[OutputLine]] = {}
    for line in islice(read_lines(path), _MOST):
        by_source.setdefault(line.source, []).append(line)
    useful = [(lines, index) for lines in by_source.values() for index in _useful(lines)]
    useful.sort(key=lambda entry: entry[0][entry[1]].number)
    if not useful:
        return None
    lines, index = next(
        (
            (lines, index)
            for wanted in (_CANNOT_LOAD, _COMPLAINS)
            for lines, index in useful
            if wanted.search(lines[index].text)
        ),
        useful[0],
    )
    return _complaint(lines, index)


def find_last_line(path: Path) -> Complaint | None:
    """Return the last useful line, or the first sentence of a message between rulers."""
    by_source: dict[str, deque[OutputLine]] = {}
    for line in read_lines(path):
        by_source.setdefault(line.source, deque(maxlen=_MOST)).append(line)
    ends = [
        (lines, index)
        for lines in map(list, by_source.values())
        for index in _useful(lines)
        if not _HYDRA_CALL.match(lines[index].text)
    ]
    if not ends:
        return None
    lines, index = max(ends, key=lambda entry: entry[0][entry[1]].number)
    if _message(lines, index) is None:
        return Complaint(_bare(lines[index].text), lines[index].number)
    return _complaint(lines, index)


def _complaint(lines: Sequence[OutputLine], index: int) -> Complaint:
    """Return the sentence that contains a line, with its wrapped lines joined."""
    message = _message(lines, index)
    begin = index if message is None else message
    while message is None and begin and _continues(lines[begin - 1], lines[begin]):
        begin -= 1
    text = lines[begin].text
    for before, line in zip(lines[begin:], lines[begin + 1 : begin + _JOINED], strict=False):
        inside = message is not None and line.place == before.place + 1 and not _NOISE.match(line.text)
        if _ends(text) or not (inside or _continues(before, line)):
            break
        text = f"{text} {line.text}"
    if text != lines[begin].text and (ending := re.match(r".{20,}?[.!?](?= [A-Z])", text)):
        text = ending[0]
    return Complaint(_bare(text), lines[begin].number)


def _useful(lines: Sequence[OutputLine]) -> list[int]:
    """Return the indices of the lines that may explain a failure."""
    useful = []
    for index, line in enumerate(lines):
        if _NOISE.match(line.text) or _WARNING.match(line.text):
            continue
        message = _message(lines, index)
        if message is None or not _ASIDE.match(lines[message].text):
            useful.append(index)
    return useful


def _message(lines: Sequence[OutputLine], index: int) -> int | None:
    """If a line is in a message between rulers, return the index of the message's first line, else None."""
    begin: int | None = None
    for place, line in enumerate(lines[: index + 1]):
        if _DASHES.fullmatch(line.text):
            begin = place + 1 if begin is None else None
        elif _RULER.fullmatch(line.text):
            begin = None
    return begin


def _continues(before: OutputLine, line: OutputLine) -> bool:
    """Return whether a line continues the sentence of the previous line. Both are outside messages between rulers."""
    joined = line.place == before.place + 1 and not (_ends(before.text) or _NOISE.match(before.text))
    return joined and len(before.text) >= _WRAPPED and line.text[0].islower() and not _PROGRAM.match(line.text)


def _ends(text: str) -> bool:
    return text[-1] in ".:;!?)\"'"


def _bare(text: str) -> str:
    return make_printable(_HYDRA_CALL.sub("", text, count=1))
