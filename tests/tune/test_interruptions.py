"""Tests that a search continues after SIGKILL of the tuner, of a job, or of a whole node, at random points.

A launcher simulates the program. Scheme and seed determine times and losses, so all searches must have the same rounds.
The controls fail, because the launcher does not load hpcbench.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.find_submission import list_submissions

LAUNCHER = """\
#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
path = next(each for each in reversed(sys.argv) if each.endswith("run.json"))
run = json.load(open(path))
scheme, seed = run["scheme"]["name"], run["program"]["seed"]
with open(os.path.join(here, "begun"), "a") as out:
    out.write(f"{{scheme}} {{seed}} {{os.getpid()}}\\n")
time.sleep(0.2)
milliseconds = {{"baseline": 100, "good": 80, "diverging": 70}}.get(scheme, 90)
shift = 0.002 * ((7 * seed + 3 * len(scheme)) % 5 - 2)
loss = 2.0 + 0.01 * (seed % 3) + 0.001 * shift + (0.3 if scheme == "diverging" else 0)
for step in range(8):
    print(f"iter {{step}}: loss {{loss:.4f}}, time {{milliseconds * (1 + shift):.2f}}ms, mfu 1.00%", flush=True)
"""
STUDY = {
    "study": "tiny",
    "program": {"command": "python train.py --seed {seed}", "log": "nanogpt", "steps": 8, "global_batch": 2},
    "nodes": 1,
    "ranks_per_node": 2,
    "schemes": {"good": {"environment": {"X": "1"}}, "diverging": {"environment": {"X": "2"}}},
    "repeats": 1,
}
SITE = {
    "site": "fake",
    "scheduler": {"kind": "local"},
    "python": sys.executable,
    "threads": 1,
    "oversubscribe": True,
    "checked": "never",
}


class _Bench:
    """A directory with the study, the site and its launcher."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        launcher = directory / "launch"
        launcher.write_text(LAUNCHER.format(python=sys.executable))
        launcher.chmod(0o755)
        (directory / "study.yaml").write_text(json.dumps(STUDY))
        site = {**SITE, "launcher": {"kind": "mpich", "program": str(launcher)}}
        (directory / "site.yaml").write_text(json.dumps(site))

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hpcbench", "tune", "study.yaml", "--loss-budget", "1%", "--max-runs", "10"]
        with (self.directory / "output").open("ab") as output:
            return subprocess.Popen(
                [*command, "--site", "site.yaml", "--out", "search"],
                cwd=self.directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def finish(self) -> dict[str, Any]:
        """Repeat the command until the search is over, and return the result."""
        for _ in range(4):
            if self.start().wait(timeout=300) == 0:
                result: dict[str, Any] = json.loads((self.directory / "search" / "tuned.json").read_text())
                return result
        pytest.fail((self.directory / "output").read_text())

    @property
    def begun(self) -> Counter[str]:
        """Number of starts of each run."""
        path = self.directory / "begun"
        return (
            Counter(line.rpartition(" ")[0] for line in path.read_text().splitlines()) if path.exists() else Counter()
        )

    def check_submissions(self) -> None:
        """Check that each round was submitted once."""
        rounds = sorted(path for path in (self.directory / "search").iterdir() if path.is_dir())
        assert rounds and all(len(list(list_submissions(each))) == 1 for each in rounds)

    def processes(self) -> Iterator[int]:
        """Yield the process groups of all queues and jobs."""
        for name in ("*/*/queues/*.json", "*/*/jobs/*/process.json"):
            for path in (self.directory / "search").glob(name):
                content = json.loads(path.read_text())
                yield int(content.get("process", content)["pid"])

    def wait_for_start(self, count: int) -> None:
        deadline = time.monotonic() + 200
        while self.begun.total() < count:
            assert time.monotonic() < deadline, (self.directory / "output").read_text()
            time.sleep(0.02)


def _describe(result: dict[str, Any]) -> tuple[Any, ...]:
    rounds = [(each["phase"], each["outcomes"]) for each in result["rounds"]]
    return result["choice"], rounds


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of a search without interruptions."""
    bench = _Bench(tmp_path_factory.mktemp("search") / "through")
    result = bench.finish()
    assert result["choice"]["scheme"] == "good" and set(bench.begun.values()) == {1}
    return result


@pytest.mark.long
def test_a_tuner_that_is_killed_at_random_points_continues(tmp_path: Path, expected: dict[str, Any]) -> None:
    bench, draw = _Bench(tmp_path / "bench"), random.Random(4)
    for _ in range(3):
        process, begun = bench.start(), bench.begun.total()
        while process.poll() is None and bench.begun.total() == begun:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 1.5))
        process.kill()
        process.wait()
    result = bench.finish()
    assert _describe(result) == _describe(expected)
    assert set(bench.begun.values()) == {1}, "a run was started twice"
    bench.check_submissions()


@pytest.mark.long
@pytest.mark.parametrize("victim", ["job", "node"])
def test_a_job_or_node_that_is_killed_is_repeated(victim: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    """If a node is killed, so are the tuner, the queue and the job."""
    bench, draw = _Bench(tmp_path / "bench"), random.Random(len(victim))
    process = bench.start()
    bench.wait_for_start(draw.randint(1, 6))
    groups = list(bench.processes())
    if victim == "node":
        process.kill()
    for group in groups if victim == "node" else groups[-1:]:
        try:
            os.killpg(os.getpgid(group), signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended
    if victim == "node":
        process.wait()
    else:
        process.wait(timeout=300)
    result = bench.finish()
    assert _describe(result) == _describe(expected)
    # Only the run that the signal ended started again.
    assert sorted(bench.begun.values())[:-1] == [1] * (len(bench.begun) - 1) and max(bench.begun.values()) <= 2
    bench.check_submissions()
