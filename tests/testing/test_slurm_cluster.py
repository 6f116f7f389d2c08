"""Tests of a Slurm cluster on one machine.

MPI treats the nodes as separate machines. The nodes fail like real nodes. After the cluster has stopped, nothing
remains.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from remains import marked
from slurm_on_one_machine import Cluster, why_not

from hpcbench.errors import UserError

pytestmark = pytest.mark.long  # in `make test`, other tests run on the cluster

MPIEXEC = Path(sys.executable).with_name("mpiexec")
WHERE_AM_I = """
import json, os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)
mine = [node.allgather(world.rank), socket.gethostname(), os.environ["SLURM_NODEID"]]
found = world.gather(mine)
if world.rank == 0:
    print(json.dumps(found))
"""
TWO_RANKS_EACH = [[[0, 1], "n1", "0"]] * 2 + [[[2, 3], "n2", "1"]] * 2


@pytest.fixture(scope="module")
def cluster(need: Callable[[str | None], None]) -> Iterator[Cluster]:
    need(why_not())
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture
def job(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that submits a script, which writes to ``out`` in the test's directory.

    Remaining jobs are killed.
    """

    def submit(script: str, *options: str) -> str:
        command = ["sbatch", "--parsable", f"--output={tmp_path}/out", *options]
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{script}\n")
        return cluster.run([*command, str(tmp_path / "job.sh")], check=True).stdout.strip()

    yield submit
    cluster.run(["scancel", "--user=root"], check=True)
    cluster.wait_idle()


def wait_for_sleeping(mark: str, count: int) -> None:
    for _ in range(600):
        if list(marked(mark).values()).count("sleep") == count:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {count} jobs in a minute, only {marked(mark)}")


def test_nodes_are_hosts_with_their_own_gpus(cluster: Cluster) -> None:
    show = 'echo "$(hostname) $CUDA_VISIBLE_DEVICES $(grep -c . /proc/1/comm) $(tr "\\0" " " </proc/1/cmdline)"'
    command = ["srun", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:2", "bash", "-c", show]
    lines = sorted(cluster.run(command, check=True).stdout.splitlines())
    assert [line.split()[:2] for line in lines] == [["n1", "0,1"], ["n2", "0,1"]]
    assert [line.split()[-1] for line in lines] == ["n1", "n2"], "each node has its own process 1"


def test_nodes_are_nodes_for_mpi_started_by_srun(cluster: Cluster) -> None:
    command = ["srun", "--mpi=pmi2", "--nodes=2", "--ntasks-per-node=2", sys.executable, "-c", WHERE_AM_I]
    assert json.loads(cluster.run(command, check=True).stdout) == TWO_RANKS_EACH


def test_nodes_are_nodes_for_mpi_started_by_mpiexec(cluster: Cluster, job: Callable[..., str], tmp_path: Path) -> None:
    command = [str(MPIEXEC), "-n", "4", "-ppn", "2", sys.executable, "-c", WHERE_AM_I]
    done = job(shlex.join(command), "--nodes=2", "--ntasks-per-node=2")
    cluster.wait_job(done, "COMPLETED")
    assert json.loads((tmp_path / "out").read_text()) == TWO_RANKS_EACH


def test_the_wrong_interface_gives_many_worlds_of_one_rank(cluster: Cluster) -> None:
    code = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    command = ["srun", "--mpi=none", "--nodes=2", "--ntasks-per-node=2", sys.executable, "-c", code]
    assert cluster.run(command, check=True).stdout.split() == ["1"] * 4


def test_jobs_outlive_the_controller(cluster: Cluster, job: Callable[..., str], tmp_path: Path) -> None:
    waits = job(f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo went")
    cluster.wait_job(waits, "RUNNING")
    cluster.stop_controller()
    try:
        assert cluster.run(["squeue"]).returncode == 1
    finally:
        cluster.start_controller()
    assert cluster.job(waits)["JobState"] == "RUNNING"
    (tmp_path / "go").touch()
    cluster.wait_job(waits, "COMPLETED")
    assert (tmp_path / "out").read_text() == "went\n"


def test_a_crashed_node_takes_its_jobs_with_it(cluster: Cluster, job: Callable[..., str]) -> None:
    mark = f"HPCBENCH_TEST_MARK={uuid.uuid4()}"
    script = f"export {mark}; exec sleep 1000"
    lost = job(script, "--nodelist=n2", "--no-requeue")
    again = job(script, "--nodelist=n2", "--requeue")
    other = job(script, "--nodelist=n1", "--no-requeue")
    wait_for_sleeping(mark, 3)
    cluster.node_kill("n2")
    assert list(marked(mark).values()) == ["sleep"], "the others are gone when node_kill returns"
    cluster.wait_job(lost, "NODE_FAIL")
    cluster.wait_job(again, "PENDING")
    assert cluster.node_state("n2").startswith("DOWN")
    cluster.node_up("n2")
    cluster.wait_job(again, "RUNNING")
    assert cluster.job(again)["Restarts"] == "1"
    assert cluster.job(other)["JobState"] == "RUNNING"


def test_a_drained_node_stays_down(cluster: Cluster, job: Callable[..., str]) -> None:
    lost = job("sleep 1000", "--nodelist=n1", "--no-requeue")
    cluster.wait_job(lost, "RUNNING")
    cluster.node_down("n1")
    cluster.wait_job(lost, "NODE_FAIL")
    time.sleep(2)  # until its slurmd has responded twice
    assert cluster.node_state("n1").startswith("DOWN")
    cluster.node_up("n1")
    assert cluster.node_state("n1") == "IDLE"


def test_urgent_jobs_requeue_others(cluster: Cluster, job: Callable[..., str]) -> None:
    weak = job("sleep 1000", "--nodes=2", "--exclusive", "--requeue")
    cluster.wait_job(weak, "RUNNING")
    strong = job("sleep 1", "--nodes=2", "--exclusive", "--partition=urgent")
    cluster.wait_job(strong, "COMPLETED")
    cluster.wait_job(weak, "RUNNING")
    assert cluster.job(weak)["Restarts"] == "1"


def test_a_time_limit_can_be_made_to_end_soon(cluster: Cluster, job: Callable[..., str]) -> None:
    late = job("sleep 1000", "--time=50")
    cluster.wait_job(late, "RUNNING")
    cluster.end_time(late, 1)
    cluster.wait_job(late, "TIMEOUT")


def test_accounting_answers_if_wanted(cluster: Cluster) -> None:
    assert "storage is disabled" in cluster.run(["sacct"]).stderr
    with Cluster(1, accounting=True) as other:
        assert other.run(["sbatch", "--parsable", "--wrap=exit 3"], check=True).stdout == "1\n", "a separate cluster"
        other.wait_job("1", "FAILED")
        for _ in range(300):  # jobs are reported to it with a delay
            output = other.run(["sacct", "-X", "-n", "-P", "-j", "1", "-o", "State,ExitCode"], check=True).stdout
            if "FAILED" in output:
                break
            time.sleep(0.1)
        assert output == "FAILED|3:0\n"
        other.stop_accounting()
        assert other.run(["sacct", "-j", "1"]).returncode != 0
        other.start_accounting()
        assert other.run(["sacct", "-j", "1"]).returncode == 0


def test_two_clusters_do_not_see_each_other(cluster: Cluster, job: Callable[..., str]) -> None:
    here = job("sleep 1000", "--job-name=here")
    cluster.wait_job(here, "RUNNING")
    with Cluster(1, gpus=0, settings={"MaxArraySize": 7}) as other:
        assert other.run(["squeue", "-h"], check=True).stdout == ""
        assert "MaxArraySize            = 7" in other.run(["scontrol", "show", "config"], check=True).stdout
        other.run(["sbatch", "--job-name=there", "--wrap=sleep 1000"], check=True)
        names = [each.run(["squeue", "-h", "-o", "%j"], check=True).stdout.split() for each in (cluster, other)]
        assert names == [["here"], ["there"]]
    assert cluster.job(here)["JobState"] == "RUNNING"


@pytest.fixture
def place(need: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory with a short name for clusters. Clusters must leave nothing behind in this directory."""
    need(why_not())
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setattr("tempfile.tempdir", place)
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)
        for _ in range(100):  # if Python was killed, its cluster may take a moment to disappear
            if not list(Path(place).iterdir()):
                break
            time.sleep(0.1)
        assert list(Path(place).iterdir()) == []


@pytest.fixture
def mark(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all processes of clusters, and check that none remains."""
    mark = f"HPCBENCH_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    yield mark
    for _ in range(100):
        if not marked(mark):
            break
        time.sleep(0.1)
    assert marked(mark) == {}


def test_nothing_is_left_at_the_end(mark: str, place: Path, tmp_path: Path) -> None:
    with Cluster(2, accounting=True) as cluster:
        cluster.run(["sbatch", "--nodes=2", "--wrap=trap '' TERM; srun sleep 1000"], cwd=tmp_path, check=True)
        cluster.wait_job("1", "RUNNING")
        assert {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd"} <= set(marked(mark).values())
        assert list(place.iterdir()) == [cluster.directory]
    assert marked(mark) == {}
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_python_is_ended_by_a_signal(mark: str, tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import signal\n"
        "from slurm_on_one_machine import Cluster\n"
        "with Cluster(2) as cluster:\n"
        "    cluster.run(['sbatch', '-N2', '--wrap=srun sleep 1000'], check=True)\n"
        "    signal.pause()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environment) as python:
        wait_for_sleeping(mark, 2)
        python.send_signal(number)
        assert python.wait(60) != 0


@pytest.mark.usefixtures("mark")
def test_a_daemon_that_does_not_start_is_named_with_its_message() -> None:
    with (
        pytest.raises(UserError, match=r"slurmctld ended at once.*unrecognized key: NoSuchSetting"),
        Cluster(1, settings={"NoSuchSetting": 1}),
    ):
        pass


def test_wrong_arguments_are_refused(cluster: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="0 nodes"):
        Cluster(0)
    with pytest.raises(UserError, match="setting SlurmctldPort"), Cluster(1, settings={"SlurmctldPort": 1}):
        pass
    with pytest.raises(UserError, match="with statement"):
        Cluster(1).stop_controller()
    with pytest.raises(UserError, match="Invalid job id"):
        cluster.run(["scontrol", "show", "job", "999"], check=True)
    monkeypatch.setattr("tempfile.tempdir", str(place / ("long" * 15)))
    with pytest.raises(UserError, match="TMPDIR to a shorter path"), Cluster(1):
        pass


def test_missing_programs_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = why_not()
    assert reason is not None
    assert "slurmctld" in reason
    assert "apt-get install --no-install-recommends slurm-wlm munge" in reason
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "root" in (why_not() or "")
