"""Claims that job scripts make on a job directory: the files ``claims/1``, ``claims/2`` and so on.

A script creates the file with the next number atomically, as a hard link. The script exits immediately if the previous
holder is still running. A scheduler may report a running job as ended, and start the job again. Both scripts then run
the job concurrently, which distorts their measurements.
"""

from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.times import parse_time
from hpcbench.contract.values import get_text
from hpcbench.files import read_json

DIRECTORY = "claims"


@dataclass(frozen=True)
class Claim:
    """A claim of a job script on a job."""

    number: int
    holder: str
    """Scheduler job ID of the script, or the script's process."""
    start: str | None
    """Start time in UTC, ISO 8601."""
    end: str | None
    """End time, or None if the script did not write it."""


def read_claims(directory: Path) -> list[Claim]:
    """Return the claims on a job, oldest first."""
    place = directory / DIRECTORY
    try:
        numbers = sorted(int(path.name) for path in place.iterdir() if path.name.isdecimal())
    except OSError:
        return []
    return [_read(place, number) for number in numbers]


def _read(place: Path, number: int) -> Claim:
    claim = read_json(place / str(number))
    try:
        end = (place / f"{number}.end").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        end = ""
    return Claim(number, get_text(claim, "holder") or "", get_text(claim, "start"), end or None)


def find_double_claim(directory: Path, start: str | None, end: str | None) -> tuple[Claim, Claim] | None:
    """Return two claims that overlapped between `start` and `end`, or None if no claims overlapped."""
    begin, over = parse_time(start), parse_time(end)
    claims = read_claims(directory)
    if begin is None or over is None:
        return None
    for later in claims[1:]:
        taken = parse_time(later.start)
        for earlier in claims:
            left = parse_time(earlier.end)
            if earlier.number < later.number and taken and left and taken < left and taken <= over and begin <= left:
                return earlier, later
    return None


def close_claim(directory: Path, time: str) -> None:
    """Record the end of the last claim on a job if the script that made the claim was killed."""
    claims = read_claims(directory)
    if claims and claims[-1].end is None:
        (directory / DIRECTORY / f"{claims[-1].number}.end").write_text(f"{time}\n", encoding="utf-8")
