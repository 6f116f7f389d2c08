"""Who held a job's directory, as its job scripts wrote it: ``claims/1``, ``claims/2`` and so on.

A script makes the next number by a link, which only one can make, and leaves at once where the last holder is not over.
A scheduler may call a job over that still runs: then two hold it for a while, and measure each other.
"""

from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.times import parse_time
from hpcbench.files import read_json

DIRECTORY = "claims"


@dataclass(frozen=True)
class Claim:
    """One script's hold of a job."""

    number: int
    holder: str
    """The id by which its scheduler knew it, or its process."""
    start: str | None
    """In UTC, ISO 8601."""
    end: str | None
    """None where it has left no word of its end."""


def read_claims(directory: Path) -> list[Claim]:
    """Return the claims on a job, oldest first.

    Parameters
    ----------
    directory
        The job's directory.
    """
    place = directory / DIRECTORY
    try:
        numbers = sorted(int(path.name) for path in place.iterdir() if path.name.isdecimal())
    except OSError:
        return []
    return [_read(place, number) for number in numbers]


def _read(place: Path, number: int) -> Claim:
    said = read_json(place / str(number)) or {}
    holder, start = said.get("holder"), said.get("start")
    try:
        end = (place / f"{number}.end").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        end = ""
    return Claim(
        number,
        holder if isinstance(holder, str) else "",
        start if isinstance(start, str) else None,
        end or None,
    )


def find_double_claim(directory: Path, start: str | None, end: str | None) -> tuple[Claim, Claim] | None:
    """Two claims that were held at once at some time between these two; None where there are none."""
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
    """Write down that the last holder of a job is over, as it could not say itself."""
    claims = read_claims(directory)
    if claims and claims[-1].end is None:
        (directory / DIRECTORY / f"{claims[-1].number}.end").write_text(f"{time}\n", encoding="utf-8")
