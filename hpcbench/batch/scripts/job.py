"""Jobs: runs that share an allocation, and the requested resources."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.shape import Shape
from hpcbench.study.container import Container

_AHEAD = Duration(120)


@dataclass(frozen=True)
class Job:
    """Runs that share an allocation, and the requested resources."""

    id: str
    runs: list[str]
    """Run ids in order of execution."""
    shape: Shape
    launch: list[str]
    """Launch command as a list of arguments."""
    python: str
    """Python interpreter of the ranks."""
    walltime: Duration | None
    queue: str | None
    account: str | None
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Environment variables of individual runs in addition to the site's, keyed by run id."""
    clear: Sequence[str] = ()
    """Variables used by any scheme of the study. Their values in the submitter's shell must not reach a run."""
    run_limit: Duration | None = None
    """Time limit of each run. The default is an equal part of the job's remaining time."""
    requeue: int = 0
    """Maximum number of requeues after a stop request."""
    stop_ahead: Duration = _AHEAD
    """Time between the stop request and the walltime."""
    container: Container | None = None
    """Container in which the ranks run, with a kind and an image."""
    reads: Sequence[str] = ()
    """Absolute paths of files outside the submission directory that ranks read."""
    name: str = ""
    """Name in the queue. By default, the name consists of the study's name and the job id."""
    program: bool = False
    """Whether runs execute a user's program. If so, an hpcbench process starts the launcher and reads its output."""
    outside: str = ""
    """Python interpreter on the host for the process that starts the launcher.

    If empty, the ranks' interpreter is used.
    """
    once_a_node: bool = False
    """Whether the launcher starts one process per node, which then starts the node's ranks."""
    prepared: Collection[str] = ()
    """Ids of engine runs whose scheme requires setup lines or a preloaded library."""
    notify: str | None = None
    """Mail address that the scheduler notifies when the job ends."""
    driver: str = sys.executable
    """Python interpreter of the job driver.

    If this interpreter is missing on a node, the ranks' interpreter is used.
    """
