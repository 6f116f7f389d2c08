"""Submission of ready-made scripts through submitit: its executors submit them, its watchers report their states.

Nothing is pickled, and submitit's checkpoints are not used.
"""

import shutil
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from submitit.core import core, utils

from hpcbench.batch.schedulers.clean_environment import clean_environment
from hpcbench.batch.schedulers.client import ProgramResult
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.batch.schedulers.submit_command import SubmitDialect, hand_in
from hpcbench.contract.state import State


@dataclass(frozen=True)
class Script:
    """What `submit` of an executor of scripts takes in place of a function."""

    path: Path
    """Absolute path of the script."""
    options: tuple[str, ...] = ()
    """Options of the submission, before the script."""

    def __call__(self) -> NoReturn:
        """Refuse the call: a job script is handed to a scheduler."""
        raise RuntimeError("a job script is handed to a scheduler, not called")


class ScriptJob(core.Job[None]):
    """A submitted script. It is over when its scheduler reports that: a script has no pickled result."""

    answer: ProgramResult | None = None

    def done(self, force_check: bool = False) -> bool:
        """Whether it is over, well or not; what is suspended is not."""
        return bool(self.watcher.is_done(self.job_id, mode="force" if force_check else "standard"))

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        state = self.watcher.get_state(self.job_id, mode="force")
        return ("success", None) if state == State.COMPLETED.name else ("error", state)


class ScriptExecutor(core.PicklingExecutor):
    """An executor of scripts. A subclass per scheduler gives the command."""

    program: str
    dialect: SubmitDialect

    @abstractmethod
    def command(self, script: Script) -> list[str]:
        """Return the command that submits the script."""

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        jobs: list[core.Job[Any]] = []
        for delayed in delayed_submissions:
            script = delayed.function
            if not isinstance(script, Script):
                raise TypeError(f"{type(self).__name__} takes a Script, not {type(script).__name__}")
            job_id, answer = hand_in(self.command(script), clean_environment(), self.dialect, cwd=self.folder)
            job = self.job_class(folder=self.folder, job_id=job_id)
            assert isinstance(job, ScriptJob)
            job.answer = answer
            jobs.append(job)
        return jobs

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return self.command(Script(submission_file_path))

    def _num_tasks(self) -> int:
        return 1

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        raise NotImplementedError("the script is there already")

    @classmethod
    def affinity(cls) -> int:
        """-1 if the submission program is missing, else 0: it is used only if it is asked for."""
        return -1 if shutil.which(cls.program) is None else 0  # only when asked for


def receipt(job: core.Job[Any], elements: Sequence[str]) -> Receipt:
    """Return the receipt of a submitted job."""
    assert isinstance(job, ScriptJob) and job.answer is not None
    return Receipt(job.job_id, elements, job.answer.argv, job.answer.output)
