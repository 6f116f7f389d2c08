"""The file ``submission.json``, which `hpcbench submit` writes and every other command reads."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ValidationError

from hpcbench.contract.criteria import Criteria, QuantityBound
from hpcbench.contract.program import LogForm
from hpcbench.contract.str_enum import StrEnum
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.files import shown_path

FILE = "submission.json"


class SchedulerKind(StrEnum):
    """The kind of scheduler that runs the jobs of a submission."""

    LOCAL = "local"
    """The local machine, without a scheduler. The jobs run one after another."""
    SLURM = "slurm"
    LSF = "lsf"
    FLUX = "flux"


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


class PlannedJob(BaseModel):
    """A job of the submission."""

    id: Name
    runs: list[Name]
    walltime: int | None = None
    """Time limit in seconds."""
    stop_ahead: int = 0
    """Seconds before the time limit at which the job asks a run to stop."""


class PlannedRun(BaseModel):
    """A run of the submission."""

    id: Name
    job: Name
    path: Inside
    """Directory of the run, relative to the submission's directory."""
    scheme: str = "unknown"
    repeat: int = 1
    pairing: str = ""
    """Name of the pairing. Runs with the same pairing are compared with each other."""
    cell: dict[str, Any] = {}
    """Values of the study's matrix, apart from scheme and repeat."""


class JobBundle(BaseModel):
    """Jobs submitted together in one call."""

    label: Name
    script: Inside
    jobs: list[Name]
    array: bool


class AddedRepeats(BaseModel):
    """Repeats that were added to a submission."""

    time: str
    jobs: list[Name]


class RunPlan(BaseModel):
    """The runs to compare: the plan of a study on a site, a submission, or a set of logs."""

    study: str
    site: str
    version: str = ""
    """Version of hpcbench."""
    time: str = ""
    """Time at which the file was written."""
    baseline: dict[str, Any] = {"scheme": "baseline"}
    criteria: Criteria = Criteria()
    thresholds: list[QuantityBound] = []
    steps: int | None = None
    """Planned number of steps of each run."""
    repeats: int | None = None
    program_log: LogForm | None = None
    """Log format of the study's program, or None for hpcbench's own training."""
    scheduler: SchedulerKind | None = None
    """Kind of scheduler, or None for logs of runs that hpcbench did not submit."""
    jobs: list[PlannedJob] = []
    runs: list[PlannedRun] = []


class SubmissionFile(RunPlan):
    """Content of ``submission.json``."""

    scheduler: SchedulerKind
    jobs: list[PlannedJob]
    runs: list[PlannedRun]
    bundles: list[JobBundle]
    name: Name
    """Prefix of the names of all jobs."""
    root: str | None = None
    """Directory in which the submission was created. The job scripts contain this path."""
    site_file: str | None = None
    study_file: str | None = None
    """Absolute paths of the site file and the study file. The files may have changed since the submission."""
    added: list[AddedRepeats] = []
    """Added repeats, oldest first."""
    dry_run: bool = False
    requeue: int = 0
    """Maximum number of requeues of a job."""
    digest: str = ""
    """Digest of everything that the jobs depend on. The digest identifies an interrupted submission."""


def read_submission(root: Path) -> SubmissionFile:
    """Read the file that `hpcbench submit` wrote.

    Raises
    ------
    UserError
        The file cannot be read, or is damaged.
    """
    path = root / FILE
    try:
        submission = SubmissionFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"{shown_path(path)}: cannot be read: {error.strerror}: give a directory made by 'hpcbench submit'"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        wrong = f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"
    else:
        astray = _astray(submission)
        if astray is None:
            return submission
        wrong = f"{astray}: occurs in one part of the file, but is missing in another part"
    raise UserError(f"{shown_path(path)}: damaged: {make_printable(wrong, 200)}: submit the study again")


def _astray(submission: SubmissionFile) -> str | None:
    """Return the first run or job that is missing from a part of the file, or None if the file is consistent."""
    jobs, runs = {job.id for job in submission.jobs}, {run.id for run in submission.runs}
    named = [run.id for run in submission.runs if run.job not in jobs]
    named += [run for job in submission.jobs for run in job.runs if run not in runs]
    named += [job for bundle in submission.bundles for job in bundle.jobs or ["no job"] if job not in jobs]
    return named[0] if named else None


def find_original_place(root: Path, submission: SubmissionFile) -> str | None:
    """Return the original directory of the submission, or None if the submission was not moved.

    The job scripts contain the original path and would run there.
    """
    place = submission.root
    if place is None or (Path(place).exists() and Path(place).samefile(root)):
        return None
    return place


def check_place(root: Path, submission: SubmissionFile) -> None:
    """Refuse to start jobs of a submission that was moved or copied."""
    place = find_original_place(root, submission)
    if place is not None:
        raise UserError(
            f"{shown_path(root)}: was moved or copied from {shown_path(place)}, where its scripts run: move it back, "
            "or submit the study again"
        )
