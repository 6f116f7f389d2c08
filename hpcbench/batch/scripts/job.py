"""A job: the runs that a scheduler starts together, and what it is asked for."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.shape import Shape
from hpcbench.study.container import Container

_AHEAD = Duration(120)


@dataclass(frozen=True)
class Job:
    """What a scheduler is handed: runs that share an allocation."""

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
    """Variables that single runs have beyond the site's, by the run's id."""
    clear: Sequence[str] = ()
    """Variables of any scheme of the study: what the submitter's shell says of them must reach no run."""
    run_limit: Duration | None = None
    """Limit of each run; by default an equal part of the time that the job has left."""
    requeue: int = 0
    """How often the job goes back to its queue when it is told to stop."""
    stop_ahead: Duration = _AHEAD
    """How long before the walltime it is told so."""
    container: Container | None = None
    """In which the ranks run, with a kind and an image."""
    reads: Sequence[str] = ()
    """Files that the ranks read, beside those of the submission; absolute."""
    name: str = ""
    """What the queue shows; by default study and id."""
    program: bool = False
    """Whether its runs are of a program of others: our process then starts the launcher, and reads what it prints."""
    outside: str = ""
    """The interpreter of that process, on the host; empty for that of the ranks."""
    once_a_node: bool = False
    """Whether the launcher starts one process on each node, which starts the node's ranks."""
    driver: str = sys.executable
    """The interpreter of the job's driver; the one of the ranks takes its place on a node that lacks it."""
