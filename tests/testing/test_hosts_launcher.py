"""Tests of the launcher that creates virtual hosts: its ranks, its exit status, and its cleanup."""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from remains import marked

from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.load_site import load_site
from hpcbench.testing.hosts import why_not
from hpcbench.testing.hosts.launcher import main
from hpcbench.testing.hosts.rates import bits_per_second

PROGRAM = [sys.executable, "-m", "hpcbench.testing.hosts.launcher"]
PLACES = """
import json, os, socket
from mpi4py import MPI
found = MPI.COMM_WORLD.gather([socket.gethostname(), os.environ["OMP_NUM_THREADS"], os.environ["HPCBENCH_RUN"]])
if found:
    print(json.dumps(found))
"""


@pytest.fixture
def possible(need: Callable[[str | None], None]) -> None:
    need(why_not())


@pytest.mark.usefixtures("possible")
def test_ranks_run_on_hosts_with_the_callers_variables_and_output(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HPCBENCH_RUN", "a run")
    assert main(["-n", "4", "-ppn", "2", "-bind-to", "none", "--rate", "1gbit", sys.executable, "-c", PLACES]) == 0
    assert json.loads(capfd.readouterr().out) == [[f"host{k}", "3", "a run"] for k in (1, 1, 2, 2)]


@pytest.mark.usefixtures("possible")
def test_the_link_has_the_requested_rate(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["-n", "1", "--rate", "50mbit", "tc", "qdisc", "show", "dev", "eth0"]) == 0
    assert " rate 50Mbit " in capfd.readouterr().out


@pytest.mark.usefixtures("possible")
def test_the_commands_exit_status_is_the_launchers() -> None:
    assert main(["-n", "2", "-ppn", "1", "bash", "-c", "exit 75"]) == 75


@pytest.mark.usefixtures("possible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_job_script_ends_it(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"HPCBENCH_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    with subprocess.Popen([*PROGRAM, "-n", "2", "-ppn", "1", "sleep", "1000"]) as launcher:
        deadline = time.monotonic() + 60
        while list(marked(mark).values()).count("sleep") != 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert list(marked(mark).values()).count("sleep") == 2
        launcher.send_signal(number)
        assert launcher.wait(60) != 0
    deadline = time.monotonic() + 60
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked(mark) == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-ppn", "2", "true"], "give -n RANKS and a command"),
        (["-n", "2"], "give -n RANKS and a command"),
        (["-n", "2", "--rate", "fast", "true"], "give a rate from 100kbit to 1000gbit, such as 50mbit"),
        (["-n", "2", "--delay-us", "-1", "true"], "give 0 or more"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hpcbench-virtual-hosts: ") and says in line


def test_the_reason_is_reported_if_hosts_cannot_be_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--can"]) == 1
    assert "install iproute2" in capsys.readouterr().out
    assert main(["-n", "2", "true"]) == 2
    assert "install iproute2" in capsys.readouterr().err


def test_the_rate_is_the_sites() -> None:
    site, _ = load_site("virtual-hosts")
    _, argv = solve(site, nodes=2, ranks_per_node=1)
    rate = bits_per_second(argv[argv.index("--rate") + 1])
    assert site.network is not None and site.network.bandwidth_gbit == pytest.approx(rate / 1e9)
    assert f"{rate / 1e6:.0f} Mbit/s" in str(site.description)
    assert argv[:6] == ["hpcbench-virtual-hosts", "-n", "2", "-ppn", "1", "-bind-to"]
