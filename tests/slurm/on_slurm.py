"""Submissions to a real Slurm, through commands or functions. Most of the ranks are fakes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from batch_fakes import Fake, wait_for
from slurm_on_one_machine import Cluster

from hpcbench.batch.submit import Options, SubmitResult, submit
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.job_state import Status
from hpcbench.contract.state import State

PATIENCE = 100.0
"""Timeout of every wait in seconds. Slurm checks limits only every 30 s, and the machine may be busy."""
MPIEXEC = Path(sys.executable).with_name("mpiexec")


class OnSlurm(Fake):
    """A study, and a site that uses Slurm. A test specifies for each scheme what the site's launcher does."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        super().__init__(directory)

    def write_site(self, **changes: Any) -> None:
        scheduler = {"kind": "slurm", **changes.pop("scheduler", {})}
        super().write_site(scheduler=scheduler, **{"walltime": "10m", "node": {"cores": 4}, **changes})

    def submit(self, **options: Any) -> Path:
        """Submit the current study, and return the submission's directory."""
        return self.submission(**options).root

    def submission(self, **options: Any) -> SubmitResult:
        """Submit the current study, and return the submission with its notes."""
        return submit(self.study, Options(**{"site": str(self.site), "out": self.directory / "out", **options}))


def hpcbench(
    *arguments: object, cwd: Path, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command of hpcbench in a separate process, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "hpcbench", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )


def unfold(text: str) -> str:
    """Join printed text to one line, without the line breaks of a table."""
    return " ".join(text.split())


def report(root: Path) -> dict[str, Any]:
    """Return the report's data of each run, by run id."""
    done = hpcbench("report", root, "--format", "json", cwd=root)
    assert done.returncode in (0, 1), done.stderr
    return {run["run"]: run for run in runs_in(json.loads(done.stdout))}


def runs_in(node: Any) -> list[dict[str, Any]]:
    """Return all JSON objects that describe a run, at any depth of a document."""
    if isinstance(node, list):
        return [run for item in node for run in runs_in(item)]
    if not isinstance(node, dict):
        return []
    return [node] if {"run", "state"} <= set(node) else [run for item in node.values() for run in runs_in(item)]


def job(root: Path, number: int = 0) -> Status:
    """Return the status of a job."""
    return list(track(root).jobs.values())[number]


def wait_state(root: Path, *states: State, number: int = 0) -> Status:
    """Wait until a job is in one of these states."""
    wait_for(lambda: job(root, number).state in states, PATIENCE)
    return job(root, number)


def wait_over(root: Path, seconds: float = PATIENCE) -> Tracked:
    """Wait until all runs of the submission have ended."""
    wait_for(lambda: track(root).over, seconds)
    return track(root)


def wait_run(root: Path, run: str, state: State = State.RUNNING, attempt: int = 1) -> None:
    """Wait until a run is in a state, in its first or a later attempt."""

    def there() -> bool:
        run_state = track(root).runs[run]
        return (run_state.state, run_state.attempt) == (state, attempt)

    wait_for(there, PATIENCE)


def listed(cluster: Cluster, name: str) -> list[str]:
    """Return the ids of the jobs in Slurm whose names begin with `name`, in any state."""
    argv = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%j"]
    rows = [line.split("|", 1) for line in cluster.run(argv, check=True).stdout.splitlines()]
    return sorted(id for id, job_name in rows if job_name.startswith(name))
