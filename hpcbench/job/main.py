"""Driver of one job attempt, from the claim to the final state."""

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.schedulers.processes import identity
from hpcbench.contract import mark
from hpcbench.contract.state import NO_ROOM_EXIT, STOPPED_EXIT
from hpcbench.contract.times import format_now
from hpcbench.job.allocation import Allocation, read_allocation
from hpcbench.job.claim import Claimant, ClaimError, HeldClaim, claim_job
from hpcbench.job.clock import JobClock, measure_age
from hpcbench.job.messages import print_error, print_line
from hpcbench.job.options import JobOptions, parse_options
from hpcbench.job.processes import identify_process, kill_run
from hpcbench.job.provenance import record_provenance
from hpcbench.job.run_loop import RunLoop
from hpcbench.job.status_files import StatusFiles, StatusRecorder, make_ascii
from hpcbench.job.stop_requests import StopRequests

_KILLED = 137
"""Exit status of a run whose driver was killed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the driver. Write the exit status of the job script, and whether to requeue the job."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    for descriptor in (options.signals, options.result):
        os.set_inheritable(descriptor, False)
    if os.getppid() != options.script:
        return _KILLED  # the job script was killed
    may_be_preempted = options.scheduler == "slurm" and options.requeue > 0
    requests = StopRequests(options.signals, may_be_preempted=may_be_preempted)
    try:
        status, again = _drive(options, requests)
    except OSError as error:
        print_error(f"{format_now()} job {options.job}: {error}")
        status, again = NO_ROOM_EXIT, False
    os.write(options.result, f"{status}{' again' if again else ''}\n".encode())
    return status


def _drive(options: JobOptions, requests: StopRequests) -> tuple[int, bool]:
    """Run the job. Return the exit status of the job script, and whether to requeue the job."""
    root, start = Path.cwd(), format_now()
    directory = Path("jobs", options.job)  # relative, for messages
    files = StatusFiles(root, directory)
    environment = read_environment()
    allocation = read_allocation(options.scheduler, options.id, environment, easy=options.easy)
    process = identify_process(options.script)
    claimant = Claimant(_shorten(options.id) or process, process, _shorten(allocation.name), start)
    try:
        claim = claim_job(directory, claimant, allocation.is_listed, files)
    except ClaimError as error:
        print_error(f"{start} job {options.job}: {error}")
        return error.status, False
    attempt = _begin_attempt(directory, files, claim)
    environment["HPCBENCH_ATTEMPT"] = str(attempt)
    recorder = StatusRecorder(
        files=files,
        root=root,
        job=options.job,
        id=options.id,
        hosts=allocation.hosts,
        attempt=attempt,
        start=start,
        is_ours=claim.is_ours,
    )
    try:
        if options.ended is not None:
            status, again = options.ended, False
            _end_runs(root, options.job, attempt, recorder)
        else:
            status, again = _run_job(options, allocation, environment, claim, files, recorder, requests)
    except OSError as error:
        files.note_failure(error)
        print_error(f"{format_now()} job {options.job}: {error}")
        status, again = NO_ROOM_EXIT, False
    recorder.record_job("requeued" if again else "ended", status)
    claim.release()
    files.give_back(directory)
    return status if options.ended is None else 0, again


def _run_job(
    options: JobOptions,
    allocation: Allocation,
    environment: dict[str, str],
    claim: HeldClaim,
    files: StatusFiles,
    recorder: StatusRecorder,
    requests: StopRequests,
) -> tuple[int, bool]:
    script = identity(options.script)
    clock = JobClock(measure_age(script["start"]) if script else 0.0)
    root, directory = Path.cwd(), Path("jobs", options.job)
    files.set_aside(directory)
    if options.host_file is not None:
        path, ranks = options.host_file
        files.write(Path(path), lambda: "".join(f"{host}\n" * ranks for host in allocation.hosts))
    if not recorder.record_job("running") or files.failure:
        return NO_ROOM_EXIT, False  # keep the measurements
    place = directory / "provenance"
    record_provenance(
        place, environment, requests, describe_job=allocation.describe, describe_python=make_doctor_command(options)
    )
    with contextlib.suppress(OSError, IndexError):
        print_line((place / "python.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-1])
    status = RunLoop(root, options, environment, claim, files, recorder, requests, clock).run_all()
    if status == STOPPED_EXIT and options.scheduler == "flux":
        print_error(f"{format_now()} stopped at a limit, and Flux cannot requeue jobs: use `hpcbench retry`")
    return status, status == STOPPED_EXIT and recorder.attempt <= options.requeue and options.scheduler != "flux"


def make_doctor_command(options: JobOptions) -> list[str]:
    """Return the command that describes the ranks' interpreter, or an empty list.

    The command loads the MPI library, except on an LSF launch host, which is shared by several users.
    """
    if not options.doctor:
        return []
    return [options.doctor, "-m", "hpcbench.doctor.job", *(["--no-mpi"] if options.easy else [])]


def _begin_attempt(directory: Path, files: StatusFiles, claim: HeldClaim) -> int:
    """Move the status and provenance of the last attempt into `attempts`. Return the number of the new attempt."""
    attempts = directory / "attempts"
    number = 1
    while (attempts / f"{number}.json").exists():
        number += 1
    status = directory / mark.FILE
    if not claim.is_new or not status.exists():
        return number
    with contextlib.suppress(OSError):
        attempts.mkdir(exist_ok=True)
    files.write(attempts / f"{number}.json", lambda: status.read_text(encoding="utf-8", errors="replace"))
    with contextlib.suppress(OSError):
        (directory / "provenance").rename(attempts / f"{number}.provenance")
    return number + 1


def _end_runs(root: Path, job: str, attempt: int, recorder: StatusRecorder) -> None:
    """Record that a killed driver's runs have ended."""
    for path in (root / "runs").iterdir():
        status = mark.read_mark(path)
        if status is None or status.job != job or status.state != "running" or status.attempt != attempt:
            continue
        kill_run(path)
        recorder.record_run(path.name, status.start or format_now(), "ended", _KILLED)


def read_environment() -> dict[str, str]:
    """Return the variables exported by the job script. Python may add LC_CTYPE to `os.environ`."""
    text = Path("/proc/self/environ").read_bytes()
    entries = [entry.partition(b"=") for entry in text.split(b"\0") if b"=" in entry]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries}


def _shorten(text: str) -> str:
    """Replace all characters except letters, digits and ``_.[]-`` with question marks."""
    return "".join(char if char.isalnum() or char in "_.[]-" else "?" for char in make_ascii(text))
