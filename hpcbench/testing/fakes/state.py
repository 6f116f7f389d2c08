"""What the programs of a fake and its dispatcher share: one file of jobs and faults, changed under a lock.

Everything here is imported by each call of a faked program, so it needs nothing but the standard library.
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
"""In the environment of all that a job starts, so that its processes are found wherever they went."""
RANK_MARK = "HPCBENCH_FAKE_HOST"
"""In the environment of ranks: the pretended host that they run on, where signals to the batch script do not reach."""


@dataclass
class Job:
    """One job, or one element of an array."""

    id: int
    script: str
    """A file that the fake copied it to."""
    index: int = 0
    """The number of an array's element; 0 where there is no array."""
    name: str = ""
    queue: str = ""
    account: str = ""
    options: dict[str, list[str]] = field(default_factory=dict)
    """As they were given, the script's lines included."""
    cwd: str = ""
    output: str = ""
    error: str = ""
    truncate: bool = False
    arguments: list[str] = field(default_factory=list)
    hosts: int = 1
    per_host: int = 1
    """Slots on each host; 0 stands for all."""
    depends: str = ""
    orphan_ends: bool = False
    throttle: int = 0
    """Elements of the array that may run at a time; 0 for all."""
    limit: float = 0.0
    """Seconds of this machine; 0 for none."""
    warning: tuple[float, int] | None = None
    """Seconds before the limit, and the signal."""
    rerunnable: bool = False
    requeue_exits: list[int] = field(default_factory=list)
    state: str = WAITING
    submitted: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    pid: int = 0
    exit: int | None = None
    why: str = ""
    """What ended it, or is about to: owner, force, limit, requeue, preempt, host, orphan."""
    note: str = ""
    plan: list[tuple[float, int, str]] = field(default_factory=list)
    """Signals to come: when, which, and why."""
    places: dict[str, int] = field(default_factory=dict)
    """Slots by pretended host."""
    starts: int = 0
    events: list[tuple[float, str]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """``12``, or ``12[3]`` for an element."""
        return f"{self.id}[{self.index}]" if self.index else str(self.id)

    def say(self, time: float, text: str) -> None:
        """Note an event of its history."""
        self.events.append((time, text))


@dataclass
class State:
    """All that changes."""

    next: int = 1
    jobs: list[Job] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def full(self, queue: str, more: int, config: "Config") -> bool:
        """Whether a user may not have so many more jobs in the queue."""
        alive = [job.queue for job in self.jobs if job.state not in ENDED]
        bounds = ((config.max_submitted, len(alive)), (config.queues[queue].get("max_submitted"), alive.count(queue)))
        return any(most and have + more > most for most, have in bounds)

    def find(self, id: int, index: int = 0) -> list[Job]:
        """The job, or all elements of the array, or one."""
        return [job for job in self.jobs if job.id == id and index in (0, job.index)]


@dataclass
class Config:
    """What is pretended; it does not change."""

    system: str
    directory: str
    nodes: int = 4
    cores: int = 40
    gpus: int = 4
    flavour: str = ""
    minute: float = 60.0
    """Seconds that a minute of the scheduler lasts."""
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The first is the default; of each, where it has such limits: ``min_nodes``, ``max_nodes``, ``max_minutes``,
    ``bins`` (the most nodes, and minutes for jobs of up to so many), ``max_submitted``, and ``exclusive`` (whether -x
    is allowed there)."""
    account_option: str = ""
    """That jobs must be given; empty where none is needed."""
    max_array: int = 1000
    max_submitted: int = 0
    """In all queues; 0 for any number."""
    clean_period: float = 3600.0
    """Seconds of this machine after which a finished job is no longer listed."""
    dispatch_delay: float = 0.0
    terminate_interval: float = 10.0
    """Seconds of this machine between one signal that ends a job and the next, harder one."""
    root_refused: bool = False
    parse_script: bool = False
    user: str = field(default_factory=getpass.getuser)

    def most_minutes(self, queue: str, nodes: int) -> float:
        """The longest job of so many nodes."""
        limits = self.queues[queue]
        bins = [minutes for most, minutes in limits.get("bins", []) if nodes <= most]
        return float(min([limits.get("max_minutes", math.inf), *bins[:1]]))

    def most_nodes(self, queue: str) -> float:
        """The largest job."""
        return float(min(self.nodes, self.queues[queue].get("max_nodes", math.inf)))

    @property
    def node_names(self) -> list[str]:
        """The pretended compute hosts."""
        return [f"node{k + 1}" for k in range(self.nodes)]


class Store:
    """The directory of a fake."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._file = self.directory / "state.json"
        self._cached: Config | None = None

    @classmethod
    def create(cls, config: Config) -> "Store":
        """Make the directory of a new fake."""
        store = cls(config.directory)
        (store.directory / "calls").mkdir(parents=True)
        (store.directory / "spool").mkdir()
        (store.directory / "config.json").write_text(json.dumps(asdict(config)), encoding="utf-8")
        store._write(State())
        return store

    @property
    def config(self) -> Config:
        if self._cached is None:
            self._cached = Config(**json.loads((self.directory / "config.json").read_text(encoding="utf-8")))
        return self._cached

    @contextmanager
    def change(self) -> Iterator[State]:
        """The state, to be changed; nobody else sees it meanwhile."""
        with (self.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self._read()
            before = json.dumps(asdict(state))
            yield state
            if json.dumps(asdict(state)) != before:
                self._write(state)

    def read(self) -> State:
        """The state as it is now."""
        return self._read()

    def record(self, program: str, argv: Sequence[str], stdin: bytes | None) -> None:
        """Keep what a program was called with."""
        with self.change():
            number = len(list((self.directory / "calls").glob("*.json")))
            path = self.directory / "calls" / f"{number:06d}.json"
            call = {"program": program, "argv": list(argv), "cwd": str(Path.cwd()), "environment": dict(os.environ)}
            path.write_text(json.dumps(call), encoding="ascii")  # bytes that are no text are escaped, and come back
            if stdin is not None:
                path.with_suffix(".stdin").write_bytes(stdin)

    def spool(self, name: str) -> Path:
        """A file of a job."""
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
