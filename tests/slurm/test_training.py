"""Tests of real multi-node MPI training on a real Slurm, from `hpcbench submit` to `hpcbench report`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import wait_for
from on_slurm import MPIEXEC, PATIENCE, OnSlurm, hpcbench, job, listed, report, unfold, wait_over
from slurm_on_one_machine import Cluster

from hpcbench.batch.tracking.seen import load
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.files import read_json

STUDY: dict[str, Any] = {
    "model": {"name": "mini", "layers": 2, "hidden": 32, "heads": 2, "vocab": 256},
    "data": {"source": "stdlib"},
    "train": {"steps": 8, "warmup_steps": 2, "global_batch": 4, "micro_batch": 1, "seq_len": 32, "precision": "fp32"},
    "layout": {"dp": 2, "tp": 1},
    "nodes": 2,
    "ranks_per_node": 1,
    "repeats": 1,
}
SLOW = """\
import os

if os.environ.get("HPCBENCH_ATTEMPT") == "1":
    import time

    from hpcbench.train.stop import StopRequest

    look = StopRequest.__call__

    def slowly(self):
        time.sleep(0.3)
        return look(self)

    StopRequest.__call__ = slowly
"""
"""Code that slows down the steps of a first attempt, so that a signal arrives before they are completed."""


def events(root: Path, run: str, log: str = "log.txt") -> dict[str, dict[str, Any]]:
    lines = (root / "runs" / run / log).read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {event["event"]: event for event in events}


class Places:
    """Three submissions that run at the same time."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        mpich = {"kind": "mpich", "program": str(MPIEXEC)}
        self.paired = self._place(folder / "paired", mpich, matrix={"scheme": ["baseline", "naive-zfp8"]}, repeats=2)
        srun = {"kind": "srun", "args": ["--mpi=pmi2"]}
        self.srun = self._place(folder / "srun", srun, ranks_per_node=2, layout={"dp": 2, "tp": 2})
        self.resumed = self._place(
            folder / "resumed", mpich, walltime="2m", stop_ahead="90s", run_limit="2m", requeue=9,
            train={**STUDY["train"], "steps": 200},
        )  # fmt: skip
        slow = folder / "slow"
        slow.mkdir()
        (slow / "sitecustomize.py").write_text(SLOW, encoding="utf-8")
        path = f"export PYTHONPATH={slow}:${{PYTHONPATH:-}}"
        self.resumed.write_site(launcher=mpich, python=sys.executable, setup=[path])

    def _place(self, directory: Path, launcher: dict[str, Any], **study: Any) -> OnSlurm:
        place = OnSlurm(directory, self.cluster)
        place.study.write_text(json.dumps({**STUDY, "study": directory.name, **study}), encoding="utf-8")
        place.write_site(launcher=launcher, python=sys.executable)
        return place


@pytest.fixture(scope="module")
def places(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("training"), cluster)


@pytest.fixture(scope="module")
def roots(places: Places, cluster: Cluster) -> dict[str, Path]:
    """All three submissions, made with the command line.

    The first submission is pending while another job occupies all nodes.
    """
    other = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000"]
    somebody = cluster.run(other, check=True).stdout.strip()
    cluster.wait_job(somebody, "RUNNING")
    roots = {}
    for place in (places.paired, places.srun, places.resumed):
        done = hpcbench("submit", place.study.name, "--site", place.site.name, "--out", "out", cwd=place.directory)
        assert done.returncode == 0, done.stderr
        roots[place.directory.name] = place.directory / "out" / "001"
        assert str(roots[place.directory.name]) in done.stdout
    wait_for(lambda: job(roots["paired"]).reason, PATIENCE)
    seen = job(roots["paired"])
    assert seen.state is State.PENDING, seen
    shown = hpcbench("status", roots["paired"], cwd=places.paired.directory)
    waiting = len(re.findall("pending (Resources|Priority|as above)", unfold(shown.stdout)))
    assert (shown.returncode, waiting) == (0, 6), shown.stdout  # two jobs with two runs each
    cluster.run(["scancel", somebody], check=True)
    return roots


def test_a_paired_study_waits_runs_completes_and_is_compared(places: Places, roots: dict[str, Path]) -> None:
    root = roots["paired"]
    seen = set()

    def over() -> bool:
        tracked = track(root)
        seen.update(status.state for status in tracked.runs.values())
        return tracked.over

    wait_for(over, PATIENCE)
    assert seen == {State.PENDING, State.RUNNING, State.COMPLETED}
    shown = hpcbench("status", root, cwd=places.paired.directory)
    assert shown.returncode == 0 and unfold(shown.stdout).count("completed") == 6
    printed = hpcbench("report", root, "--tables", "method", cwd=places.paired.directory)
    assert printed.returncode == 0, printed.stderr
    text = unfold(printed.stdout)
    assert "paired on fake" in text and "baseline" in text and "naive-zfp8" in text
    assert (
        "Schemes are compared over pairs of runs with the same seed (number of pairs: 2), in the same allocation"
        in text
    )
    assert {run["state"] for run in report(root).values()} == {"completed"}


def test_ranks_are_placed_on_two_hosts_as_requested(places: Places, roots: dict[str, Path]) -> None:
    wait_over(roots["srun"])
    assert track(roots["srun"]).runs["r1-baseline"].state is State.COMPLETED
    for name, per_node in (("paired", 1), ("srun", 2)):
        wait_over(roots[name])
        events_of_run = events(roots[name], "r1-baseline")
        hosts = [rank["host"] for rank in events_of_run["environment"]["world"]]
        assert len(hosts) == 2 * per_node and [hosts.count(host) for host in set(hosts)] == [per_node, per_node]
        mark = read_json(roots[name] / "jobs" / "j0001-r1" / "status.json")
        assert mark is not None and set(mark["hosts"]) == set(hosts) and mark["host"] in hosts
        assert not [event for event in events_of_run if event.startswith("binding")]


def test_ids_attempts_provenance_and_accounting_are_kept(
    cluster: Cluster, places: Places, roots: dict[str, Path]
) -> None:
    root = roots["paired"]
    tracked = wait_over(root)
    assert set(tracked.ids.values()) == set(listed(cluster, "paired-"))
    for name, id in tracked.ids.items():
        mark = read_json(root / "jobs" / name / "status.json")
        assert mark is not None and (mark["id"], mark["attempt"], mark["exit"]) == (id, 1, 0)
        names = {path.name for path in (root / "jobs" / name / "provenance").iterdir()}
        assert {"environment.txt", "job.txt", "system.txt"} <= names
        assert f"JobId={id}" in (root / "jobs" / name / "provenance" / "job.txt").read_text(encoding="utf-8")
    wait_for(lambda: track(root) and all(seen.word.accounting for seen in load(root).values()), PATIENCE)
    for name, seen in load(root).items():
        mark = read_json(root / "jobs" / name / "status.json")
        first, second = sorted(int(host.removeprefix("n")) for host in (mark or {})["hosts"])
        joined = "-" if second == first + 1 else ","  # Slurm uses any two of its nodes
        assert seen.word.state is State.COMPLETED and seen.word.hosts == f"n[{first}{joined}{second}]"
        assert {"Submit", "Start", "ElapsedRaw"} <= set(seen.word.accounting), name
    submitted = read_json(root / "provenance" / "submit.json")
    assert submitted is not None and submitted["environment"]["SLURM_CONF"] == cluster.environment["SLURM_CONF"]


def test_a_signal_before_the_limit_requeues_the_job_and_its_run_continues(
    places: Places, roots: dict[str, Path], cluster: Cluster
) -> None:
    root = roots["resumed"]
    tracked = wait_over(root, 3 * PATIENCE)
    run = tracked.runs["r1-baseline"]
    assert run.state is State.COMPLETED and run.attempt >= 2, run
    # On a busy machine, the first attempts may be requeued before a rank opens the log.
    logs = sorted((root / "runs" / "r1-baseline").glob("log.*.txt"), key=lambda log: int(log.name.split(".")[1]))
    first, last = events(root, "r1-baseline", logs[0].name), events(root, "r1-baseline")
    assert first["end"]["state"] == "stopped" and 0 < first["end"]["steps"] < 200
    before = read_json(root / "jobs" / "j0001-r1" / "attempts" / "1.json")
    assert before is not None and (before["state"], before["exit"], before["attempt"]) == ("requeued", 75, 1)
    assert last["start"]["attempt"] == run.attempt and last["start"]["resumed_from"] >= first["end"]["steps"]
    assert last["end"]["state"] == "completed" and last["end"]["steps"] == 200
    id = tracked.ids["j0001-r1"]
    assert before["id"] == id and int(cluster.job(id)["Restarts"]) == run.attempt - 1
    (note,) = [note for note in report(root)["r1-baseline"]["notes"] if "resumed" in note]
    assert f"was resumed at step {last['start']['resumed_from']} (attempt {run.attempt})" in note
