"""Tests of `hpcbench bench network` on real ranks. The planner uses the file that the command writes."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks_cli import bench

from hpcbench.bench import memory, world
from hpcbench.bench.network import MESSAGES, Level, _Computing
from hpcbench.bench.network import _list_peers_between as peers_between
from hpcbench.bench.network import _list_peers_within as peers_within
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.links import load
from hpcbench.comm.plan import Operation
from hpcbench.comm.topology import Topology
from hpcbench.predict import core_costs

NAMES = ("none", "int8", "zfp:8")
SIZES = [1024, 4096, 16384]


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.long), 4])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, str]:
    """Return the number of ranks, the file and the output. `--ranks` starts two ranks, and the launcher starts four."""
    ranks: int = request.param
    file = tmp_path_factory.mktemp("network") / "links.json"
    options = ("--max-mb", "0.02", "--repeats", "1", "--output", file)
    options += ("--between-work",) if ranks == 4 else ()
    how: tuple[str, ...] = ("--ranks", "2") if ranks == 2 else ()
    done = bench("network", *NAMES, *options, *how, mpirun=None if how else ranks)
    assert done.returncode == 0, done.stderr
    return ranks, file, done.stdout


def test_the_file_is_read_back(written: tuple[int, Path, str]) -> None:
    ranks, file, _ = written
    links = load(file)
    assert links.ranks_per_node == (ranks,) and links.measured == () and links.transport == "mpi"
    assert links.between == links.within, "there is one node"
    assert links.within.latency_s > 0 and links.within.bytes_per_s > 0
    assert [name for name, _ in links.codecs] == ["none", "int8:256", "zfp:8"]
    assert [(operation, size) for operation, size, _ in links.native] == [
        (operation.value, size) for operation in Operation for size in SIZES
    ]
    assert all(seconds > 0 for _, _, seconds in links.native)
    for name, speed in links.codecs:
        assert min(speed.encode_bytes_per_s, speed.decode_bytes_per_s, speed.call_s) > 0
        if get_codec(name).fixed_size:
            n = 1 << 20
            assert speed.ratio == get_codec(name).wire_bytes(n, np.dtype(np.float32)) / (4 * n)


def test_the_file_says_where_it_comes_from(written: tuple[int, Path, str]) -> None:
    ranks, file, _ = written
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert document["between"] is None and document["messages"]["between"] is None
    assert list(document["messages"]["within"]["seconds"]) == [str(nbytes) for nbytes in MESSAGES]
    assert min(MESSAGES) >= 256 * 1024
    assert document["mpi"] and document["date"] and document["hosts"] and document["machine"]["cpu"]
    assert document["wait"] in ("spin", "give way") and document["ranks_per_node"] == [ranks]
    assert list(file.parent.iterdir()) == [file]


def test_what_a_codec_computes_is_no_more_than_what_the_clock_of_the_slowest_rank_shows(
    written: tuple[int, Path, str],
) -> None:
    """The limit leaves room for coarse clocks, and for threads of one process that compute at the same time."""
    _, file, _ = written
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    computed, clock = document["codecs_of_a_core"], document["codecs"]
    assert list(computed) == list(clock)
    for name, speed in computed.items():
        assert speed["ratio"] == clock[name]["ratio"] and speed["call_s"] > 0
        assert speed["encode_bytes_per_s"] > 0.2 * clock[name]["encode_bytes_per_s"], name


def test_what_calls_cost_shared_cores_stands_in_the_file_if_wanted(written: tuple[int, Path, str]) -> None:
    ranks, file, _ = written
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if ranks == 2:
        assert "between_work" not in document and core_costs.read_core_costs(document, 1.0) is None
        return
    collectives = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce")
    wanted = {(operation, n) for operation in collectives for n in (2, 4)}
    wanted |= {("send", 2)}
    rows = document["between_work"]
    assert {(row["operation"], row["ranks"]) for row in rows} == wanted
    assert {(row["bytes"], row["crossing"]) for row in rows} == {(1024, False)}
    costs = core_costs.read_core_costs(document, 2.0)
    seconds = [costs.time_collective(name, 1024, ranks=4, crossing=False) for name in collectives] if costs else []
    assert any(seconds), "one of them may be lost in the noise, but not all"


@pytest.mark.parametrize(("missing", "there"), [("within", "between"), ("between", "within")])
def test_a_machine_with_one_kind_of_link_is_read(missing: str, there: str, tmp_path: Path) -> None:
    """If each node has only one rank, or a single node has all ranks, one kind of link is not measured."""
    link = {"latency_s": 1e-5, "bytes_per_s": 1e9}
    file = tmp_path / "links.json"
    file.write_text(json.dumps({"schema": 1, missing: None, there: link, "codecs": {}, "native": [], "measured": []}))
    links = load(file)
    assert links.within == links.between and links.within.bytes_per_s == 1e9


def test_the_tables(written: tuple[int, Path, str]) -> None:
    ranks, _, out = written
    lines = out.splitlines()
    assert lines[0].startswith(f"1 nodes x {ranks} ranks; ")
    assert sum(line.startswith("1 nodes x") for line in lines) == 1, "one rank prints"
    firsts = [line.split()[0] for line in lines[1:] if line]
    assert firsts == [
        *("Links", "links", "within"),
        *("Codecs", "codec,", "none", "int8:256", "zfp:8"),
        *("MPI", "bytes", "1K", "4K", "16K"),
    ]
    assert "between nodes" not in out


def test_whom_ranks_send_to() -> None:
    regular, ragged = Topology.regular(2, 3), Topology.by_label("aaab")
    assert peers_within(regular) == [1, 2, 0, 4, 5, 3]
    assert peers_between(regular) == [3, 4, 5, 0, 1, 2]
    assert peers_within(ragged) == [1, 2, 0, 3], "alone on its node"
    assert peers_between(ragged) == [3, 3, 3, 0]
    assert peers_between(Topology.flat(2)) == [0, 1]


def test_the_bandwidth_is_that_of_the_largest_messages() -> None:
    level = Level(1e-5, {1024: 1e-6, 4096: 1e-3}, senders=4)
    assert level.link.bytes_per_s == pytest.approx(4 * 4096 / 1e-3), "smaller ones passed at once"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "needs several ranks. Start it with `mpirun -n 8 hpcbench bench network ...`, or add --ranks 8"),
        (["--ranks", "1"], "--ranks 1: a measurement needs at least 2 ranks"),
        (["--ranks", "2", "nonsense"], "unknown codec 'nonsense'"),
        (["--ranks", "2", "--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--ranks", "2", "--max-mb", "0"], "--max-mb 0: must be at least"),
        (["--ranks", "2", "--output", "none/x.json"], "the directory none does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_end_in_one_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = bench("network", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.startswith("hpcbench: ") and done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_all_ranks_find_wrong_one_of_them_says() -> None:
    done = bench("network", "--repeats", "0", mpirun=3)
    assert done.returncode == 2 and done.stderr.count("hpcbench: --repeats 0") == 1
    done = bench("network", "--ranks", "3", mpirun=2)
    assert done.returncode == 2 and done.stderr.count("a world of 2 ranks, but 3 were requested") == 1


def test_a_launcher_that_starts_worlds_of_one_rank_is_found_out() -> None:
    done = bench("network", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "a world of 1 ranks, but 4 were requested" in done.stderr and "--mpi=pmix" in done.stderr
    assert bench("network", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="1").stderr == ""
    assert "a world of one rank" in bench("network", mpirun=1).stderr


@pytest.mark.parametrize(
    ("variables", "launched", "rank"),
    [
        ({}, False, 0),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, False, 0),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, True, 1),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, True, 3),
        ({"PMIX_RANK": "2"}, True, 2),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, True, 1),
        ({"MPI_LOCALNRANKS": "2"}, True, 0),
    ],
)
def test_how_a_launcher_is_recognized(
    variables: dict[str, str], launched: bool, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*world._RANKS, *world._SIZES, world._STEP, "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (world.is_launched(), world.rank()) == (launched, rank)


def test_memory_is_what_the_strictest_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (tmp_path / "cgroup").write_text("1:cpu:/\n0::/job/step\n")
    step = tmp_path / "groups/job/step"
    step.mkdir(parents=True)
    for name, path in (("_MEMORY", "meminfo"), ("_GROUP", "cgroup"), ("_GROUPS", "groups")):
        monkeypatch.setattr(memory, name, tmp_path / path)
    assert memory.count_available_bytes() == 8000 * 1024
    (step / "memory.max").write_text("max\n")
    (step / "memory.current").write_text("5\n")
    assert memory.count_available_bytes() == 8000 * 1024
    (step.parent / "memory.max").write_text("5000\n")
    (step.parent / "memory.current").write_text("2000\n")
    assert memory.count_available_bytes() == 3000


def test_a_codec_that_waits_does_not_compute() -> None:
    asleep = _Computing(lambda: time.sleep(0.05))
    for _ in range(3):
        asleep()
    assert asleep.median < 0.02, "a clock would show 50 ms"
