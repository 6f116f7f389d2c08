"""What `submission.json` holds, as far as the commands read it."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from hpcbench.errors import UserError
from hpcbench.study.yaml12 import shown_path


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", text):
        raise ValueError("cannot name a directory")
    return text


def _inside(text: str) -> str:
    if not text or text.startswith("/") or ".." in text.split("/"):
        raise ValueError("must lie within the submission's directory")
    return text


Name = Annotated[str, AfterValidator(_name)]
Inside = Annotated[str, AfterValidator(_inside)]


class PlannedJob(TypedDict):
    """A job."""

    id: Name
    runs: list[Name]
    walltime: int | None
    """Seconds."""
    stop_ahead: int


class PlannedRun(TypedDict):
    """A run."""

    id: Name
    job: Name
    path: Inside
    scheme: NotRequired[str]
    repeat: NotRequired[int]
    pairing: NotRequired[str]


class Bundled(TypedDict):
    """Jobs that are handed in by one call."""

    label: Name
    script: Inside
    jobs: list[Name]
    array: bool


class Written(TypedDict):
    """A submission."""

    study: str
    site: str
    scheduler: str
    jobs: list[PlannedJob]
    runs: list[PlannedRun]
    bundles: list[Bundled]
    name: Name
    """Begins the names of what is handed in."""
    root: NotRequired[str]
    """Where it was written; its scripts name that place."""
    dry_run: NotRequired[bool]
    requeue: NotRequired[int]
    digest: NotRequired[str]


_WRITTEN = TypeAdapter(Written)


def read_submission(root: Path) -> Written:
    """What was written when the study was submitted.

    Raises
    ------
    UserError
        It cannot be read, or is not what was written.
    """
    path = root / "submission.json"
    try:
        found = _WRITTEN.validate_json(path.read_bytes())
    except OSError as error:
        wrong = error.strerror or "cannot be read"
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        wrong = f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"
    else:
        jobs, runs = {job["id"] for job in found["jobs"]}, {run["id"] for run in found["runs"]}
        astray = [run["id"] for run in found["runs"] if run["job"] not in jobs]
        astray += [run for job in found["jobs"] for run in job["runs"] if run not in runs]
        astray += [job for one in found["bundles"] for job in one["jobs"] or ["no job"] if job not in jobs]
        if not astray:
            return found
        wrong = f"{astray[0]}: is said to be where it is not"
    raise UserError(f"{shown_path(path)}: damaged: {wrong}: submit the study again")


def moved_from(root: Path, submission: Written) -> str | None:
    """Where the submission was written, if it is not there any more: its scripts would run there."""
    place = submission.get("root")
    if place is None or (Path(place).exists() and Path(place).samefile(root)):
        return None
    return place


def check_place(root: Path, submission: Written) -> None:
    """Refuse to start anything of a submission that was moved or copied.

    Raises
    ------
    UserError
        It was.
    """
    place = moved_from(root, submission)
    if place is not None:
        raise UserError(
            f"{shown_path(root)}: was moved or copied from {shown_path(place)}, where its scripts run: move it back, "
            "or submit the study anew"
        )
