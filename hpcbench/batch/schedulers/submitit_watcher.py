"""Adapter that maps hpcbench's job states to submitit's, and polls all jobs with one call.

submitit treats every unknown state, such as a suspension, as the end of a job. It also discards the whole response if
the command fails, and LSF's command fails if any job is unknown. This watcher avoids both errors: it keeps such jobs,
and uses the rest of the response.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from submitit.core import core, logger

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State
from hpcbench.errors import UserError

_OVER = frozenset(
    {State.COMPLETED, State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.NODE_FAILED, State.CANCELLED}
)
"""Final states. Preempted jobs may restart, and the state of lost jobs is unknown, so neither state is final."""

_NAMES = {State.TIMED_OUT: "TIMEOUT", State.NODE_FAILED: "NODE_FAIL"}
"""States with a different name in submitit."""


class StatusWatcher(core.InfoWatcher):
    """Watcher that polls all registered jobs with one call and caches their statuses.

    Parameters
    ----------
    words
        Function that polls the scheduler. The function maps ids to statuses, and omits unlisted ids.
    delay_s
        Minimum number of seconds between two calls, except for new jobs.
    """

    def __init__(self, words: Callable[[Sequence[str]], Mapping[str, JobStatus]], delay_s: int = 60) -> None:
        super().__init__(delay_s=delay_s)
        self._words = words
        self._said: dict[str, JobStatus] = {}

    def update(self) -> None:
        """Poll all unfinished jobs. A missing response is ignored."""
        waited_for = sorted(self._registered - self._finished)
        if not waited_for:
            return
        self._num_calls += 1
        try:
            statuses = self._words(waited_for)
        except UserError as error:
            logger.get_logger().warning(f"{error}: the known states of the jobs may be out of date")
            statuses = {}
        for job, status in statuses.items():
            before = self._said.get(job)
            if status.state is State.UNKNOWN and before is not None:
                continue
            self._said[job] = status
            name = _NAMES.get(status.state, status.state.name)
            exit_status = "" if status.exit is None else str(status.exit)
            self._info_dict[job] = {
                "State": name,
                "Reason": status.reason,
                "Exit": exit_status,
                "NodeList": status.hosts,
            }
        self._last_status_check = time.time()
        self._finished.update(job for job in waited_for if self.is_done(job, mode="cache"))

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return ``PENDING``, ``RUNNING``, ``SUSPENDED``, ``COMPLETED``, ..., or ``UNKNOWN`` if unknown."""
        return str(self.get_info(job_id, mode=mode).get("State", State.UNKNOWN.name))

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Return whether the job has ended, successfully or not."""
        self.get_info(job_id, mode=mode)
        status = self._said.get(job_id)
        return status is not None and status.state in _OVER

    def clear(self) -> None:
        """Clear all cached statuses."""
        super().clear()
        self._said = {}
