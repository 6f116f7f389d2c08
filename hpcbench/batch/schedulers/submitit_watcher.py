"""A watcher of submitit's that speaks our words.

submitit takes every state that it has not heard of for an end, suspension among them, and drops a whole answer if its
command fails, as LSF's does where one job of many is unknown. This one does neither.
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
"""What a job does not come back from. One that was preempted may, and nobody knows of one that is lost."""

_NAMES = {State.TIMED_OUT: "TIMEOUT", State.NODE_FAILED: "NODE_FAIL"}
"""What submitit's users know otherwise than by our names."""


class StatusWatcher(core.InfoWatcher):
    """Keeps a scheduler's words of all registered jobs, asked for in one call.

    Parameters
    ----------
    words
        What asks the scheduler: ids to words, those that it does not know left out.
    delay_s
        Seconds between two calls, at least, once jobs are no longer new.
    """

    def __init__(self, words: Callable[[Sequence[str]], Mapping[str, JobStatus]], delay_s: int = 60) -> None:
        super().__init__(delay_s=delay_s)
        self._words = words
        self._said: dict[str, JobStatus] = {}

    def update(self) -> None:
        """Ask about all jobs that are not over; an answer that does not come changes nothing."""
        waited_for = sorted(self._registered - self._finished)
        if not waited_for:
            return
        self._num_calls += 1
        try:
            words = self._words(waited_for)
        except UserError as error:
            logger.get_logger().warning(f"{error}: what is known of the jobs may be out of date")
            words = {}
        for job, word in words.items():
            before = self._said.get(job)
            if word.state is State.UNKNOWN and before is not None:
                continue
            self._said[job] = word
            name = _NAMES.get(word.state, word.state.name)
            exit_status = "" if word.exit is None else str(word.exit)
            self._info_dict[job] = {"State": name, "Reason": word.reason, "Exit": exit_status, "NodeList": word.hosts}
        self._last_status_check = time.time()
        self._finished.update(job for job in waited_for if self.is_done(job, mode="cache"))

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """``PENDING``, ``RUNNING``, ``SUSPENDED``, ``COMPLETED`` ...; ``UNKNOWN`` if nobody can say."""
        return str(self.get_info(job_id, mode=mode).get("State", State.UNKNOWN.name))

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether it is over, well or not."""
        self.get_info(job_id, mode=mode)
        word = self._said.get(job_id)
        return word is not None and word.state in _OVER

    def clear(self) -> None:
        """Forget all that was said."""
        super().clear()
        self._said = {}
