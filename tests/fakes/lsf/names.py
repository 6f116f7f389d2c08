"""Names of LSF jobs and arrays, and ids of jobs and elements."""

import re

from fakes.programs import RefusedError
from fakes.state import Job, State

_ARRAY = re.compile(r"([^\[\]]+)\[([^\[\]]*)\](?:%(\d+))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def parse_array(text: str, largest: int) -> tuple[str, list[int], int]:
    """Return name, indices and concurrency limit of ``name[1-8]%2``. The index of a job that is not an array is 0."""
    if "[" not in text and "]" not in text:
        return text, [0], 0
    match = _ARRAY.fullmatch(text)
    if not match:
        raise RefusedError("Bad job name. Job not submitted.")
    return match[1], _parse_indices(match[2], largest, "Bad job name. Job not submitted."), int(match[3] or 0)


def _parse_indices(text: str, largest: int, complaint: str) -> list[int]:
    indices: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or int(match[1]) < 1:
            raise RefusedError(complaint)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise RefusedError(complaint)
        if last > largest:
            raise RefusedError("Job array index too large. Job not submitted.")
        indices += range(first, last + 1, step)
    return sorted(set(indices))


def select(word: str, state: State) -> list[Job]:
    """Return the jobs that match ``12``, ``12[3]`` or ``12[1-4]``. The result may be empty.

    Raises
    ------
    RefusedError
        The argument is not an id.
    """
    match = re.fullmatch(r"(\d+)(?:\[([\d,:-]+)\])?", word)
    if not match:
        raise RefusedError(f"{word}: Illegal job ID.")
    jobs = state.find(int(match[1]))
    if match[2] is None:
        return jobs
    wanted = _parse_indices(match[2], 10**9, f"{word}: Illegal job array index.")
    return [job for job in jobs if job.index in wanted]


def is_named(pattern: str, job: Job) -> bool:
    """Return whether -J with this pattern selects the job.

    The pattern may begin or end with ``*``, and may contain an element in brackets.
    """
    base, bracket, index = pattern.partition("[")
    if bracket and index.rstrip("]") != str(job.index):
        return False
    regex = ".*".join(re.escape(part) for part in base.split("*"))
    return re.fullmatch(regex, job.name) is not None
