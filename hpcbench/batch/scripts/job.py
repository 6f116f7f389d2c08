"""Job: runs that share an allocation, and the requested resources."""

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
    """Ids of the runs, in the order in which they run."""
    shape: Shape
    launch: list[str]
    """Argument list of the launcher."""
    python: str
    """The interpreter of the ranks."""
    walltime: Duration | None
    queue: str | None
    account: str | None
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables of single runs in addition to those of the site, keyed by the run's id."""
    clear: Sequence[str] = ()
    """Variables of any scheme of the study. Their values in the submitter's shell must not reach a run."""
    run_limit: Duration | None = None
    """Limit of each run; by default an equal part of the time that the job has left."""
    requeue: int = 0
    """Number of times that the job may be requeued after a stop request."""
    stop_ahead: Duration = _AHEAD
    """Time between the stop request and the walltime."""
    container: Container | None = None
    """Container of the ranks, with a kind and an image."""
    reads: Sequence[str] = ()
    """Absolute paths of files that the ranks read in addition to those of the submission."""
    name: str = ""
    """Name in the queue; by default study and id."""
    program: bool = False
    """Whether its runs are of a user's program: a process of hpcbench then starts the launcher and reads its output."""
    outside: str = ""
    """The interpreter of that process on the host; empty for that of the ranks."""
    once_a_node: bool = False
    """Whether the launcher starts one process on each node, which starts the node's ranks."""
    prepared: Collection[str] = ()
    """Runs of the engine whose scheme has setup lines or a library to preload."""
    driver: str = sys.executable
    """The interpreter of the job's driver. If a node lacks it, the interpreter of the ranks is used."""
