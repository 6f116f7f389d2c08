"""Tests of virtual hosts: MPI treats them as machines, their links are limited, and nothing remains afterwards."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from remains import marked

from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import seconds_on_link

WHERE_AM_I = """
import json, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)
mine = [node.allgather(world.rank), socket.gethostname()]
found = world.gather(mine)
if world.rank == 0:
    print(json.dumps(found))
"""
LEAST_TIMES = """
import json, sys, time
from mpi4py import MPI
world, nbytes = MPI.COMM_WORLD, int(sys.argv[1])
message, empty = bytearray(nbytes), bytearray(0)

def seconds(pairs):
    receivers = [to for sender, to in pairs if sender == world.rank]
    senders = [sender for sender, to in pairs if to == world.rank]
    world.Barrier()
    time.sleep(0.02)  # long enough for a bucket to fill
    world.Barrier()
    start = time.perf_counter()
    requests = [world.Irecv(bytearray(nbytes), sender) for sender in senders]
    requests += [world.Isend(message, to) for to in receivers]
    MPI.Request.Waitall(requests)
    end = time.perf_counter()  # the clock of all hosts
    return world.allreduce(end, MPI.MAX) - world.allreduce(start if receivers else end, MPI.MIN)

pairs = {"there": [(0, 1)], "back": [(1, 0)], "both": [(0, 1), (1, 0)], "from one": [(0, 1), (0, 2)],
         "to one": [(0, 2), (1, 2)]}
times = {name: min(seconds(each) for _ in range(10)) for name, each in pairs.items()}
if world.rank == 0:
    print(json.dumps(times))
"""
LAST_RANK_IS_KILLED = """
import os, signal
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == world.size - 1:
    os.kill(os.getpid(), signal.SIGKILL)
world.Barrier()
"""


@pytest.fixture(autouse=True)
def _possible(need: Callable[[str | None], None]) -> None:
    need(why_not())


def places() -> set[str]:
    """Return named namespaces and mounts. Only names, mounts and processes can keep a namespace alive."""
    named = {str(path) for folder in ("/run/netns", "/etc/netns") for path in Path(folder).glob("*host[0-9]*")}
    mounts = {line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return named | (mounts & {"/dev/shm", "/etc/hosts", "/proc", "/sys"})


@pytest.fixture
def mark(_possible: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all processes of hosts, and check that neither processes nor namespaces remain."""
    mark = f"HPCBENCH_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    before = places()
    yield mark
    for _ in range(100):  # if Python was killed, its hosts may take a moment to disappear
        if not marked(mark):
            break
        time.sleep(0.1)
    assert marked(mark) == {}
    assert places() == before


def wait_for_ranks(mark: str, ranks: int) -> None:
    for _ in range(600):
        if list(marked(mark).values()).count("sleep") == ranks:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {ranks} ranks in a minute, only {marked(mark)}")


def limits(hosts: Hosts, host: int) -> list[tuple[str, str]]:
    """Return the device and rate of each token bucket of a host, as printed by tc."""
    shown = hosts.on(host, ["tc", "-s", "qdisc"])
    assert shown.returncode == 0, shown.stderr
    return re.findall(r"^qdisc tbf \S+ dev (\S+) root .*?rate (\S+) ", shown.stdout, re.MULTILINE)


def ports(hosts: Hosts) -> list[str]:
    """Return the interfaces of the hosts to the network that connects them."""
    return sorted(re.findall(r"port\d+(?=@)", hosts.on(0, ["ip", "-brief", "link"]).stdout))


@pytest.mark.usefixtures("mark")
def test_hosts_are_nodes_for_mpi() -> None:
    with Hosts(3, rate="200mbit") as hosts:
        done = hosts.run([sys.executable, "-c", WHERE_AM_I], ranks=6, ranks_per_host=2, timeout=120)
    assert done.returncode == 0, done.stderr
    pairs = [([0, 1], "host1"), ([2, 3], "host2"), ([4, 5], "host3")]
    assert json.loads(done.stdout) == [list(pair) for pair in pairs for _ in range(2)]


@pytest.mark.usefixtures("mark")
def test_a_killed_rank_on_the_last_host_ends_the_job() -> None:
    with Hosts(2) as hosts:
        done = hosts.run([sys.executable, "-c", LAST_RANK_IS_KILLED], ranks=4, timeout=120)
    assert done.returncode != 0


@pytest.mark.usefixtures("mark")
def test_set_rate_changes_the_queue_of_every_host() -> None:
    with Hosts(2, rate="50mbit", delay_us=100) as hosts:
        for rate, shown in (
            ("50mbit", "50Mbit"),
            ("2.5gbit", "2500Mbit"),
            (None, None),
            (None, None),
            ("1gbit", "1Gbit"),
        ):
            hosts.set_rate(rate)
            for host in (1, 2):
                assert limits(hosts, host) == ([("eth0", shown)] if shown else [])


def least_times(hosts: Hosts, nbytes: int) -> dict[str, float]:
    """Return the message times after a pause, by sender and receiver: each is the minimum of ten, in seconds."""
    done = hosts.run([sys.executable, "-c", LEAST_TIMES, str(nbytes)], ranks=3, ranks_per_host=1, timeout=120)
    assert done.returncode == 0, done.stderr
    times: dict[str, float] = json.loads(done.stdout)
    return times


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize("nbytes", [4096, 65536])
def test_no_message_after_a_pause_is_faster_than_its_link(nbytes: int) -> None:
    """Simultaneous messages that share the sender's or the receiver's link are included.

    Noise only makes messages slower.
    """
    with Hosts(3) as hosts:
        hosts.set_rate("50mbit")
        link = seconds_on_link(nbytes, "50mbit")
        for name, least in least_times(hosts, nbytes).items():
            assert least >= 0.9 * link * (2 if name in ("from one", "to one") else 1), name


@pytest.mark.usefixtures("mark")
def test_links_with_only_a_token_bucket_are_detected_as_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    shape_links = Hosts._shape_links
    monkeypatch.setattr(Hosts, "_shape_links", lambda hosts, rate: shape_links(hosts, None))
    with Hosts(3, rate="50mbit") as hosts:
        assert limits(hosts, 1) == [("eth0", "50Mbit")]
        assert min(least_times(hosts, 65536).values()) < 0.5 * seconds_on_link(65536, "50mbit")


@pytest.mark.usefixtures("mark")
def test_hosts_whose_network_has_ended_report_it() -> None:
    with Hosts(2) as hosts:
        assert hosts._first is not None
        hosts._first.kill()
        hosts._first.wait()
        with pytest.raises(UserError, match="cannot be limited"):
            hosts.set_rate("50mbit")


@pytest.mark.parametrize(("nbytes", "frames"), [(0, 1), (1, 1), (1448, 1), (1449, 2), (65536, 46)])
def test_a_message_needs_the_time_of_its_frames(nbytes: int, frames: int) -> None:
    assert seconds_on_link(nbytes, "200mbit") == pytest.approx((nbytes + 66 * frames) * 8 / 200e6)


@pytest.mark.usefixtures("mark")
def test_messages_between_hosts_go_through_the_links() -> None:
    def sent() -> int:
        shown = hosts.on(1, ["tc", "-s", "qdisc", "show", "dev", "eth0"]).stdout
        return int(re.findall(r"Sent (\d+) bytes", shown)[0])

    code = "from mpi4py import MPI; w = MPI.COMM_WORLD; b = bytearray({}); w.bcast(b); w.Barrier()"
    program = [sys.executable, "-c", code.format(2_000_000)]
    with Hosts(2, rate="1gbit") as hosts:
        before = sent()
        assert hosts.run(program, ranks=2, ranks_per_host=2, timeout=120).returncode == 0
        within = sent() - before
        assert hosts.run(program, ranks=2, ranks_per_host=1, timeout=120).returncode == 0
        between = sent() - before - within
    assert within < 100_000
    assert between > 2_000_000


def test_a_timeout_ends_all_ranks_and_the_hosts_continue(mark: str) -> None:
    with Hosts(2) as hosts:
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            hosts.run(["bash", "-c", "echo begun; setsid sleep 1000"], ranks=2, timeout=20)
        assert "begun" in caught.value.output
        assert "sleep" not in marked(mark).values()
        assert hosts.run(["hostname"], ranks=2).stdout.split() in (["host1", "host2"], ["host2", "host1"])


@pytest.mark.usefixtures("mark")
def test_a_hosts_files_in_shared_memory_are_its_own() -> None:
    with Hosts(2) as hosts:
        hosts.on(1, ["touch", "/dev/shm/of-host1"])
        assert hosts.on(1, ["ls", "/dev/shm"]).stdout == "of-host1\n"
        assert hosts.on(2, ["ls", "/dev/shm"]).stdout == ""
        assert not Path("/dev/shm/of-host1").exists()


def test_processes_that_a_command_leaves_are_ended_with_it(mark: str) -> None:
    with Hosts(2) as hosts:
        assert hosts.on(2, ["bash", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"]).returncode == 0
        hosts.on(1, ["true"])  # the kernel has removed it by then
        assert "sleep" not in marked(mark).values()


def test_nothing_is_left_when_the_body_fails_and_a_process_still_runs(mark: str) -> None:
    def compute() -> None:
        codes.append(hosts.run(["sleep", "1000"], ranks=2).returncode)

    codes: list[int] = []
    thread = threading.Thread(target=compute)
    with pytest.raises(RuntimeError, match="the body's own"), Hosts(2) as hosts:
        thread.start()
        wait_for_ranks(mark, 2)
        raise RuntimeError("the body's own")
    assert marked(mark) == {}
    thread.join(60)
    assert codes != [0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_python_is_ended_by_a_signal(mark: str, number: signal.Signals) -> None:
    code = (
        "from hpcbench.testing.hosts import Hosts\n"
        "with Hosts(2) as hosts: hosts.run(['sleep', '1000'], ranks=2, timeout=1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as python:
        wait_for_ranks(mark, 2)
        python.send_signal(number)
        assert python.wait(60) != 0


@pytest.mark.usefixtures("mark")
def test_two_instances_do_not_see_each_other() -> None:
    with Hosts(3, rate="1gbit") as fast:
        with Hosts(2, rate="50mbit") as slow:
            slow.set_rate("100mbit")
            assert limits(slow, 2) == [("eth0", "100Mbit")]
            assert limits(fast, 2) == [("eth0", "1Gbit")]
            assert [ports(slow), ports(fast)] == [["port1", "port2"], ["port1", "port2", "port3"]]
            done = slow.run([sys.executable, "-c", WHERE_AM_I], ranks=2, timeout=120)
            assert json.loads(done.stdout) == [[[0], "host1"], [[1], "host2"]]
        done = fast.run([sys.executable, "-c", WHERE_AM_I], ranks=3, timeout=120)
        assert json.loads(done.stdout) == [[[k], f"host{k + 1}"] for k in range(3)]


@pytest.mark.usefixtures("mark")
def test_hosts_that_fail_to_start_report_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="did not start"), Hosts(2, delay_us=10):
        pass


@pytest.mark.parametrize("rate", ["fast", "1kbit", "200", "200 mbit", "1e9bit", "-1mbit"])
def test_wrong_rates_are_refused(rate: str) -> None:
    with pytest.raises(UserError, match="give a rate from 100kbit to 1000gbit, such as 50mbit"):
        Hosts(2, rate=rate)


def test_unsuitable_arguments_are_refused() -> None:
    with pytest.raises(UserError, match="0 hosts"):
        Hosts(0)
    with pytest.raises(UserError, match="do not fit on 2 hosts"):
        Hosts(2).run(["true"], ranks=5, ranks_per_host=2)
    with pytest.raises(UserError, match="with statement"):
        Hosts(2).on(1, ["true"])


def test_a_missing_tool_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = why_not()
    assert reason is not None
    assert "nsenter, tc" in reason
    assert "install iproute2" in reason


def test_a_missing_compiler_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert why_not() == (
        "virtual hosts need a C compiler, but no-such-compiler was not found: apt-get install gcc, or set CC"
    )
