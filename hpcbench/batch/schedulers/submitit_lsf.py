"""LSF plugin for submitit, which runs Python functions with ``AutoExecutor(cluster="lsf")``.

The plugin is registered as a submitit entry point. For usage, see `docs/how-to/lsf-plugin.md`.
"""

import os
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, job_environment, logger, plugins, utils

from hpcbench.batch.schedulers.clean_environment import clean_environment, plain_environment
from hpcbench.batch.schedulers.client import ask
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.lsf_dialect import DIALECT, OVER, build_bsub_command
from hpcbench.batch.schedulers.lsf_hosts import find_lsf_hosts
from hpcbench.batch.schedulers.lsf_query import HANGS, LsfQuery
from hpcbench.batch.schedulers.lsf_script import Parameters, one_line, script_text
from hpcbench.batch.schedulers.submit_command import submit_script
from hpcbench.batch.schedulers.submitit_watcher import StatusWatcher


def lsf_id(job_id: str) -> str:
    """Convert submitit's ``123_4`` to LSF's ``123[4]``."""
    job, underscore, index = job_id.partition("_")
    return f"{job}[{index}]" if underscore else job


_QUERY = LsfQuery()


def read_statuses(ids: Sequence[str]) -> Mapping[str, JobStatus]:
    """Return the statuses of submitit's job ids. One bjobs call covers all jobs, and bhist those that it omits."""
    statuses = _QUERY.read_statuses([lsf_id(job) for job in ids])
    return {job: statuses[lsf_id(job)] for job in ids if lsf_id(job) in statuses}


class LSFJob(core.Job[core.R]):
    """A Python function that runs under LSF."""

    _cancel_command = "bkill"
    watcher = StatusWatcher(read_statuses)

    def cancel(self, check: bool = True) -> None:
        """Cancel the job. If `check` is set, raise an error if LSF refuses to cancel it."""
        _bkill([self._cancel_command, lsf_id(self.job_id)], check)

    def _interrupt(self, timeout: bool = False) -> None:
        """Send the signal that LSF sends before the run limit or before preemption."""
        _bkill([self._cancel_command, "-s", LSFJobEnvironment.USR_SIG, lsf_id(self.job_id)], check=True)


def _bkill(argv: list[str], check: bool) -> None:
    """Call bkill. It is not an error if the job has already ended."""
    answer = ask(argv, plain_environment(), hangs=HANGS)
    if check and answer.status and not OVER.search(answer.output):
        raise subprocess.CalledProcessError(answer.status, argv, answer.out, answer.err)


class LSFExecutor(core.PicklingExecutor):
    """Executor that pickles functions and runs them under LSF. An array is submitted with one bsub call.

    Parameters
    ----------
    folder
        Directory of scripts, pickles and logs. All nodes must have access to this directory.
    max_num_timeout
        Maximum number of requeues at the time limit, for functions with a checkpoint.
    python
        Command that starts Python in the job. The default is this interpreter.
    """

    job_class = LSFJob

    def __init__(
        self,
        folder: Path | str,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        super().__init__(folder, max_num_timeout=max_num_timeout, max_pickle_size_gb=max_pickle_size_gb)
        self.python = shlex.quote(sys.executable) if python is None else python
        if self.affinity() <= 0:
            raise RuntimeError("bsub is not on PATH: run this on a login node of an LSF cluster")

    @classmethod
    def name(cls) -> str:
        """Return the name of the executor in submitit."""
        return "lsf"

    @classmethod
    def affinity(cls) -> int:
        """Return -1 if bsub is not on PATH, otherwise 2, as submitit does for clusters."""
        return -1 if shutil.which("bsub") is None else 2

    @classmethod
    def _equivalence_dict(cls) -> core.EquivalenceDict:
        return {
            "name": "job_name",
            "timeout_min": "time",
            "mem_gb": "mem_gb",
            "nodes": "nodes",
            "cpus_per_task": "cpus_per_task",
            "gpus_per_node": "gpus_per_node",
            "tasks_per_node": "tasks_per_node",
        }

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(Parameters.__dataclass_fields__)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        unknown = sorted(set(kwargs) - self._valid_parameters())
        if unknown:
            raise ValueError(
                f"LSF has no parameter {', '.join(unknown)}: use one of {sorted(self._valid_parameters())}"
            )
        Parameters(**{**self.parameters, **kwargs})
        super()._internal_update_parameters(**kwargs)

    @property
    def _shape(self) -> Parameters:
        return Parameters(**self.parameters)

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        if len(delayed_submissions) == 1:
            return list(super()._internal_process_submissions(list(delayed_submissions)))
        folder = self._make_folder()
        pickles = []
        for delayed in delayed_submissions:
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            delayed.set_timeout(self._shape.time, self.max_num_timeout)
            delayed.dump(pickles[-1])
        self._throttle()
        array = self._submit_command(self._submitit_command_str, elements=len(pickles))
        tasks = list(range(self._num_tasks()))
        ids = [f"{array.job_id}_{k + 1}" for k in range(len(pickles))]
        jobs: list[core.Job[Any]] = [self.job_class(folder=self.folder, job_id=job, tasks=tasks) for job in ids]
        for job, path in zip(jobs, pickles, strict=True):
            job.paths.move_temporary_file(path, "submitted_pickle")
        return jobs

    def _make_folder(self) -> Path:
        folder = Path(utils.JobPaths.get_first_id_independent_folder(self.folder))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def _submitit_command_str(self) -> str:
        return f"{self.python} -u -m submitit.core._submit {one_line(str(self.folder))}"

    def _submit_command(self, command: str, elements: int = 0) -> core.Job[Any]:
        """Submit as submitit does, but with a deadline and a clean environment. The id must be on a line of its own."""
        path = self._make_folder() / f".submission_file_{uuid.uuid4().hex}.sh"
        path.write_text(self._make_submission_file_text(command, "", elements), encoding="utf-8")
        job_id, _ = submit_script(self._make_submission_command(path), clean_environment(), DIALECT, cwd=path.parent)
        job = self.job_class(folder=self.folder, job_id=job_id, tasks=list(range(self._num_tasks())))
        if elements:
            path.rename(path.with_name(f"{job_id}_submission.sh"))
        else:
            job.paths.move_temporary_file(path, "submission_file", keep_as_symlink=True)
        return job

    def _num_tasks(self) -> int:
        return self._shape.tasks

    def _make_submission_file_text(self, command: str, uid: str, elements: int = 0) -> str:
        return script_text(command, self.folder, self._shape, elements)

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        path, by = submission_file_path, self._shape.hand_in
        return build_bsub_command(path if by == "stdin" else Path(path.name), (), by)

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        text = string if isinstance(string, str) else string.decode()
        match = DIALECT.id.search(text)
        if match is None:
            raise utils.FailedSubmissionError(f"bsub's answer has no job id: {text!r}")
        return match[1]


class LSFJobEnvironment(job_environment.JobEnvironment):
    """Job environment of a function that runs under LSF."""

    _env = {  # noqa: RUF012  declared in the base class
        "job_id": "LSB_JOBID",
        "num_tasks": "SUBMITIT_LSF_NTASKS",
        "num_nodes": "SUBMITIT_LSF_NNODES",
        "node": "SUBMITIT_LSF_NODEID",
        "global_rank": "SUBMITIT_LSF_RANK",
        "local_rank": "SUBMITIT_LSF_LOCAL_RANK",
    }

    @property
    def array_job_id(self) -> str | None:
        """Id of the array, or None for a single job, which has index 0."""
        return None if self.array_task_id is None else self.raw_job_id

    @property
    def array_task_id(self) -> str | None:
        """Index of the array element, starting at 1."""
        index = os.environ.get("LSB_JOBINDEX", "")
        return None if index in ("", "0") else index

    @property
    def hostnames(self) -> list[str]:
        """Unique hosts of the ranks, without the launch host."""
        return find_lsf_hosts(os.environ, easy=True) or [self.hostname]

    def _requeue(self, countdown: int) -> None:
        job = lsf_id(self.job_id)
        logger.get_logger().info(f"Requeueing job {job} ({countdown} remaining timeouts)")
        subprocess.run(["brequeue", job], check=True, stdin=subprocess.DEVNULL, timeout=60)


def owner() -> str:
    """Return the class that submitit uses for ``lsf``. Another package may also have registered a class."""
    executor = plugins.get_executors().get("lsf")
    return "none" if executor is None else f"{executor.__module__}.{executor.__qualname__}"
