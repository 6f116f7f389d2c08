"""Checks before submission to LSF: whether each queue exists, is open, and is active.

`bsub` cannot check a job without submitting it. Limits, accounts and dependencies are checked during submission.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.batch.schedulers.client import ask
from hpcbench.batch.schedulers.lsf_query import HANGS
from hpcbench.errors import UserError

PATIENCE = 30.0
"""Deadline in seconds. Without the check, the same error would be reported later."""
_QUEUE = re.compile(r"^#BSUB -q (\S+)$", re.MULTILINE)


def preflight(root: Path, jobs: Sequence[BatchJob]) -> Iterator[str]:
    """Check the queues of a submission on disk with `bqueues`. Yield lines for the user.

    Raises
    ------
    UserError
        A queue does not exist or is closed.
    """
    if shutil.which("bqueues") is None:
        return
    named = [match[1] for job in jobs if (match := _QUEUE.search((root / job.script).read_text(encoding="utf-8")))]
    for queue in dict.fromkeys(named):
        yield from _of_queue(queue)


def _of_queue(queue: str) -> Iterator[str]:
    try:
        answer = ask(["bqueues", "-w", queue], plain_environment(), patience=PATIENCE, hangs=HANGS)
    except UserError as error:
        yield f"could not check whether queue {queue} accepts jobs: {error}"
        return
    if re.search(rf"^{re.escape(queue)}: No such queue", answer.output, re.MULTILINE):
        raise UserError(
            f"bqueues: LSF has no queue {queue}: set queue: in the study to another queue, or correct queues: of the "
            "site file"
        )
    status = _status(answer.out, queue)
    if status.startswith("Closed"):
        raise UserError(
            f"bqueues: queue {queue} accepts no jobs ({status}): set queue: in the study to another queue, or wait"
        )
    if status.startswith("Open:Inact"):
        yield f"queue {queue} accepts jobs but starts none at the moment ({status})"


def _status(table: str, queue: str) -> str:
    """Return the status of a queue in the output of `bqueues`, or an empty string if the queue is not listed."""
    rows = [line.split() for line in table.splitlines()]
    heads = next((row for row in rows if row[:1] == ["QUEUE_NAME"]), [])
    row_of_queue = next((row for row in rows if row[:1] == [queue]), [])
    place = heads.index("STATUS") if "STATUS" in heads else len(row_of_queue)
    return row_of_queue[place] if place < len(row_of_queue) else ""
