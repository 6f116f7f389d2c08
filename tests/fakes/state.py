"""State shared by a fake's programs and its dispatcher: a file of jobs and faults, changed under a lock.

Each call of a fake program imports this module, so the module uses only the standard library.
"""

import fcntl
import getpass
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HELD, WAITING, RUNNING = "held", "waiting", "running"
STOPPED, SYSTEM_STOPPED = "stopped", "stopped by the system"
DONE, EXITED = "done", "exited"
ENDED = (DONE, EXITED)
ALIVE = (RUNNING, STOPPED, SYSTEM_STOPPED)

MARK = "HPCBENCH_FAKE_JOB"
"""Environment variable that identifies a job's processes."""
RANK_MARK = "HPCBENCH_FAKE_HOST"
"""Environment variable with the simulated host of a rank. Signals to the batch script do not reach these ranks."""
FIND_FAKES = f"import sys; sys.path[:0] = {[str(path) for path in Path(__file__).resolve().parents[1:3]]!r}"
"""Statement that makes a new interpreter find this package and hpcbench in the same checkout."""


@dataclass
class Job:
    """A job or an element of an array."""

    id: int
    script: str
    """Path of the fake's copy of the script."""
    index: int = 0
    """Index of the element, or 0 if the job is not an array."""
    name: str = ""
    queue: str = ""
    account: str = ""
    options: dict[str, list[str]] = field(default_factory=dict)
    """Options as given, including options in the script."""
    cwd: str = ""
    output: str = ""
    error: str = ""
    truncate: bool = False
    arguments: list[str] = field(default_factory=list)
    hosts: int = 1
    per_host: int = 1
    """Slots per host, or 0 for all."""
    depends: str = ""
    orphan_ends: bool = False
    throttle: int = 0
    """Largest number of concurrent array elements, or 0 for all."""
    limit: float = 0.0
    """Time limit in real seconds, or 0 for none."""
    warning: tuple[float, int] | None = None
    """Warning time before the limit in seconds, and the signal."""
    rerunnable: bool = False
    requeue_exits: list[int] = field(default_factory=list)
    state: str = WAITING
    submitted: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    pid: int = 0
    exit: int | None = None
    why: str = ""
    """Reason why the job ended or will end: owner, force, limit, requeue, preempt, host, orphan."""
    note: str = ""
    plan: list[tuple[float, int, str]] = field(default_factory=list)
    """Future signals: time, signal, and reason."""
    places: dict[str, int] = field(default_factory=dict)
    """Number of slots on each fake host."""
    starts: int = 0
    events: list[tuple[float, str]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Key ``12``, or ``12[3]`` for an element."""
        return f"{self.id}[{self.index}]" if self.index else str(self.id)

    def say(self, time: float, text: str) -> None:
        """Add an event to the job's history."""
        self.events.append((time, text))


@dataclass
class State:
    """All mutable data."""

    next: int = 1
    jobs: list[Job] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def is_full(self, queue: str, more: int, config: "Config") -> bool:
        """Return whether the queue's limit per user excludes `more` further jobs."""
        alive = [job.queue for job in self.jobs if job.state not in ENDED]
        bounds = ((config.max_submitted, len(alive)), (config.queues[queue].get("max_submitted"), alive.count(queue)))
        return any(most and have + more > most for most, have in bounds)

    def find(self, id: int, index: int = 0) -> list[Job]:
        """Return the job, all elements of the array, or a single element."""
        return [job for job in self.jobs if job.id == id and index in (0, job.index)]


@dataclass
class Config:
    """Settings of a fake, which do not change."""

    system: str
    directory: str
    nodes: int = 4
    cores: int = 40
    gpus: int = 4
    flavour: str = ""
    minute: float = 60.0
    """Length of a scheduler minute in seconds."""
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Queues. The first queue is the default.

    A queue may have limits: ``min_nodes``, ``max_nodes``, ``max_minutes``, ``bins`` (pairs of a job's maximum number of
    nodes and its maximum minutes), ``max_submitted``, and ``exclusive`` (whether -x is allowed there).
    """
    account_option: str = ""
    """Option that each job requires, or an empty text."""
    max_array: int = 1000
    max_submitted: int = 0
    """Largest number of jobs in all queues, or 0 for no limit."""
    clean_period: float = 3600.0
    """Real time in seconds after which a finished job is no longer listed."""
    dispatch_delay: float = 0.0
    terminate_interval: float = 10.0
    """Real time in seconds between a signal that ends a job and the next, stronger signal."""
    root_refused: bool = False
    parse_script: bool = False
    user: str = field(default_factory=getpass.getuser)

    def get_most_minutes(self, queue: str, nodes: int) -> float:
        """Return the longest time of a job with this number of nodes, in minutes."""
        limits = self.queues[queue]
        bins = [minutes for most, minutes in limits.get("bins", []) if nodes <= most]
        return float(min([limits.get("max_minutes", math.inf), *bins[:1]]))

    def get_most_nodes(self, queue: str) -> float:
        """Largest number of nodes of a job."""
        return float(min(self.nodes, self.queues[queue].get("max_nodes", math.inf)))

    @property
    def node_names(self) -> list[str]:
        """Names of the fake compute hosts."""
        return [f"node{k + 1}" for k in range(self.nodes)]


class Store:
    """Directory of a fake."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._file = self.directory / "state.json"
        self._cached: Config | None = None

    @classmethod
    def create(cls, config: Config) -> "Store":
        """Create the directory of a new fake."""
        store = cls(config.directory)
        (store.directory / "calls").mkdir(parents=True)
        (store.directory / "spool").mkdir()
        (store.directory / "config.json").write_text(json.dumps(asdict(config)), encoding="utf-8")
        store._write(State())
        return store

    @property
    def config(self) -> Config:
        """Settings of the fake."""
        if self._cached is None:
            self._cached = Config(**json.loads((self.directory / "config.json").read_text(encoding="utf-8")))
        return self._cached

    @contextmanager
    def change(self) -> Iterator[State]:
        """Yield the state for modification, under a lock."""
        with (self.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self._read()
            before = json.dumps(asdict(state))
            yield state
            if json.dumps(asdict(state)) != before:
                self._write(state)

    def read(self) -> State:
        """Return the current state."""
        return self._read()

    def record(self, program: str, argv: Sequence[str], stdin: bytes | None) -> None:
        """Record the arguments and the input of a call."""
        with self.change():
            number = len(list((self.directory / "calls").glob("*.json")))
            path = self.directory / "calls" / f"{number:06d}.json"
            call = {"program": program, "argv": list(argv), "cwd": str(Path.cwd()), "environment": dict(os.environ)}
            path.write_text(json.dumps(call), encoding="ascii")  # undecodable bytes are escaped, and are restored later
            if stdin is not None:
                path.with_suffix(".stdin").write_bytes(stdin)

    def locate_file(self, name: str) -> Path:
        """Return a file of a job."""
        return self.directory / "spool" / name

    def _read(self) -> State:
        data = json.loads(self._file.read_text(encoding="ascii"))
        return State(data["next"], [Job(**_tuples(job)) for job in data["jobs"]], data["faults"])

    def _write(self, state: State) -> None:
        temporary = self._file.with_name(f"state.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(asdict(state)), encoding="ascii")
        temporary.replace(self._file)


def _tuples(job: dict[str, Any]) -> dict[str, Any]:
    for name in ("plan", "events"):
        job[name] = [tuple(entry) for entry in job[name]]
    job["warning"] = tuple(job["warning"]) if job["warning"] else None
    return job
