"""Dispatcher of a fake. The dispatcher runs the jobs on this machine, and signals and ends them on time.

When the dispatcher's stdin is closed, the dispatcher ends all its jobs and exits. The dispatcher therefore never
outlives the process that started it.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from fakes import systems
from fakes.processes import send
from fakes.state import (
    ALIVE,
    DONE,
    EXITED,
    MARK,
    RUNNING,
    WAITING,
    Config,
    Job,
    State,
    Store,
)

TICK = 0.05


class Dispatcher:
    """Dispatcher, which does its work in regular ticks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.config = store.config
        self.system = systems.load(self.config.system)
        self._children: dict[tuple[str, int], subprocess.Popen[bytes]] = {}

    def tick(self) -> None:
        """Detect ended jobs, send due signals, and start jobs that can start."""
        if not _anything_to_do(self.store.read()):
            return
        with self.store.change() as state:
            now = time.time()
            for job in state.jobs:
                if job.state in ALIVE:
                    self._watch(job, now)
            for job in state.jobs:
                if job.state == WAITING and now >= job.submitted + self.config.dispatch_delay:
                    self._try(job, state, now)

    def close(self) -> None:
        """End all jobs."""
        send(f"{self.store.directory}:", signal.SIGKILL)

    def mark(self, job: Job) -> str:
        """Value of the variable that identifies the job's processes."""
        return f"{self.store.directory}:{job.key}"

    def _watch(self, job: Job, now: float) -> None:
        child = self._children.get((job.key, job.starts))
        status = child.poll() if child else -signal.SIGKILL
        if status is not None:
            self._end(job, status, now)
            return
        due = [entry for entry in job.plan if entry[0] <= now]
        job.plan = [entry for entry in job.plan if entry[0] > now]
        for _, number, why in due:
            if why and not job.why:
                job.why = why
            if why:
                self.system.record_signal(job, number, why, now)
            # a stopped process handles only these signals until it continues
            if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT) and job.state != RUNNING:
                send(self.mark(job), signal.SIGCONT)
            ranks = number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT) or self.system.can_reach_ranks(
                self.config
            )
            send(self.mark(job), number, ranks=ranks)

    def _end(self, job: Job, status: int, now: float) -> None:
        send(self.mark(job), signal.SIGKILL)
        self._children.pop((job.key, job.starts), None)
        job.exit = 128 - status if status < 0 else status
        job.ended, job.plan = now, []
        again = job.why in ("requeue", "preempt") or (job.why == "host" and job.rerunnable)
        again = again or (job.exit in job.requeue_exits and not job.why)
        fine = job.exit == 0 and job.why in ("", "limit")
        self.system.record_end(job, self.config, now, again=again)
        if again:
            job.state, job.why, job.pid, job.places = WAITING, "", 0, {}
            job.submitted = now  # a requeued job is dispatched no sooner than a new job
        else:
            job.state = DONE if fine else EXITED

    def _try(self, job: Job, state: State, now: float) -> None:
        ready = self.system.is_ready(job, state)
        if ready is None and job.orphan_ends:
            job.state, job.why, job.ended = EXITED, "orphan", now
            self.system.record_end(job, self.config, now, again=False)
        running = [other for other in state.jobs if other.id == job.id and other.state in ALIVE]
        if not ready or (job.throttle and len(running) >= job.throttle):
            return
        places = place(job, state, self.config)
        if places is not None:
            self._start(job, places, now)

    def _start(self, job: Job, places: dict[str, int], now: float) -> None:
        job.places, job.started, job.exit = places, now, None
        job.starts += 1
        job.state = RUNNING
        submitted = json.loads(self.store.locate_file(f"{job.id}.env.json").read_text(encoding="ascii"))
        variables = {**submitted, **self.system.list_variables(job, self.store), MARK: self.mark(job)}
        output = _open(job.output, job.truncate and job.starts == 1)
        error = _open(job.error, job.truncate and job.starts == 1) if job.error else subprocess.STDOUT
        try:
            child = subprocess.Popen(
                [*_find_interpreter(job.script), job.script, *job.arguments],
                cwd=job.cwd,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=error,
                start_new_session=True,
            )
        except OSError as failure:
            job.note = str(failure)
            self._end(job, 127, now)
            return
        self._children[(job.key, job.starts)] = child
        job.pid = child.pid
        job.plan = self.system.plan(job, self.config, now)
        self.system.record_start(job, now)


def place(job: Job, state: State, config: Config) -> dict[str, int] | None:
    """Return hosts with enough free slots, or None if the job must wait."""
    used = dict.fromkeys(config.node_names, 0)
    for other in state.jobs:
        if other.state in ALIVE:
            for host, slots in other.places.items():
                used[host] += slots
    wanted = job.per_host or config.cores
    free = [host for host in config.node_names if config.cores - used[host] >= wanted]
    return dict.fromkeys(free[: job.hosts], wanted) if len(free) >= job.hosts else None


def _anything_to_do(state: State) -> bool:
    return any(job.state in (*ALIVE, WAITING) for job in state.jobs)


def _find_interpreter(script: str) -> list[str]:
    """Return the interpreter in the script's first line, or the shell if the line names none."""
    with Path(script).open("rb") as file:
        first = file.readline(300).decode(errors="replace").strip()
    return first[2:].split(maxsplit=1) if first.startswith("#!") else ["/bin/sh"]


def _open(path: str, truncate: bool) -> IO[bytes] | int:
    if not path:
        return subprocess.DEVNULL
    try:
        return Path(path).open("wb" if truncate else "ab")
    except OSError:
        return subprocess.DEVNULL  # as on a real machine, the job runs but its output is lost


def main() -> None:
    """Run the dispatcher. `Fake` starts this process with its state directory."""
    dispatcher = Dispatcher(Store(sys.argv[1]))
    stop: list[Any] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))
    try:
        while not stop:
            if select.select([sys.stdin], [], [], TICK)[0] and not os.read(0, 100):
                break
            dispatcher.tick()
    finally:
        dispatcher.close()
