"""Tests of the drafted site file, which is valid for all findings and contains all detected values and no others."""

import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from machine import SLURM, Machine, site_of

from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts
from hpcbench.doctor.cluster import Cluster, Said
from hpcbench.doctor.draft_site import draft, render
from hpcbench.errors import UserError

NVIDIA = "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits"


def test_no_scheduler_at_all(machine: Machine, tmp_path: Path) -> None:
    machine.answers({NVIDIA: "NVIDIA A2, 15356, 550.1\nNVIDIA A2, 15356, 550.1"})
    machine.answers({"mpiexec --version": "mpirun (Open MPI) 4.1.4"})
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.scheduler.kind, site.launcher.kind, site.python, site.node.cores) == (
        "local",
        "openmpi",
        "auto",
        "auto",
    )
    assert (site.node.gpu, site.node.gpu_memory_gb) == ("NVIDIA A2", 14)
    assert "slurm: scontrol is not on PATH" in text


@pytest.mark.parametrize("program", ["sinfo", "sacctmgr", "srun"])
def test_a_client_that_hangs_leaves_out_only_its_own_values(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    machine.answers(SLURM)
    machine.script(program, "sleep 1000")
    monkeypatch.setattr("hpcbench.batch.schedulers.attempt.PATIENCE", 0.5)
    site = site_of(draft("elsewhere"), tmp_path)
    assert site.scheduler.kind == "slurm" and list(site.queues) == ["debug", "long"]


def test_modules_that_are_loaded(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADEDMODULES", "craype-network-ofi:cray-mpich/8.1.28:xalt/2.1:cudatoolkit/12.2")
    monkeypatch.setenv("MPICH_GPU_SUPPORT_ENABLED", "1")
    machine.answers(SLURM)
    text = draft()
    site = site_of(text, tmp_path)
    assert site.modules == ["craype-network-ofi", "cray-mpich/8.1.28", "cudatoolkit/12.2"]
    assert "also loaded here: xalt/2.1" in text
    assert site.gpu_aware_mpi is None and "MPICH_GPU_SUPPORT_ENABLED is 1 here" in text


def test_an_invalid_name_is_refused(machine: Machine) -> None:
    with pytest.raises(UserError, match="--name 'a b': is not a valid name of a site"):
        draft("a b")


_texts = st.text(string.printable + "é\u2028\x85\x00#:'\"{}[]$`", max_size=30)
_small = st.none() | st.integers(0, 9)
_nodes = st.builds(
    Nodes,
    count=st.integers(0, 9),
    cores=_small,
    sockets=st.none() | st.integers(1, 9),
    threads=st.none() | st.integers(1, 4),
    memory_gb=st.none() | st.integers(1, 999),
    gpus=_small,
    gpu=st.none() | _texts.filter(str.strip),
    socket_gpus=st.none() | st.lists(st.integers(0, 4), max_size=3).map(tuple),
)
_walltimes = st.none() | st.sampled_from(["30m", "1h", "2d", "45s"])
_lines = st.builds(
    QueueFacts,
    name=st.sampled_from(["batch", "yes", "12", "1e3", "null", "-x", "a b", "", "x.y_z-1"]) | _texts,
    source=_texts,
    nodes=st.lists(_nodes, max_size=3),
    default=st.booleans(),
    open=st.booleans(),
    min_nodes=st.none() | st.integers(1, 3),
    max_nodes=st.none() | st.integers(3, 9),
    max_walltime=_walltimes,
    max_submitted=st.none() | st.integers(1, 99),
    notes=st.lists(_texts, max_size=2),
)
_schedulers = {
    "slurm": {"account_option": Said("--account", ""), "directives": Said({"--exclusive": None, "--mem": 0}, "x")},
    "lsf": {"account_option": Said("-P", ""), "allocation": Said("slots", ""), "directives": Said({"-x": None}, "x")},
    "flux": {"account_option": Said("--bank", "")},
}


@given(
    st.sampled_from(sorted(_schedulers)),
    st.none() | _texts,
    st.lists(_lines, max_size=4),
    st.lists(_texts, max_size=2),
    _texts,
)
@settings(
    max_examples=50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_draft_is_valid_for_every_finding(
    machine: Machine, tmp_path: Path, kind: str, name: str | None, lines: list[QueueFacts], notes: list[str], fact: str
) -> None:
    unique = list({line.name: line for line in lines}.values())
    cluster = Cluster(kind, fact, name, unique, dict(_schedulers[kind]), notes)
    site = site_of(render(cluster), tmp_path)
    assert site.scheduler.kind == kind and set(site.queues) <= {line.name for line in unique if line.open}


@pytest.mark.parametrize(("name", "is_open"), [("gpu", False), ("gpu \\", True)])
def test_the_default_walltime_fits_the_first_queue_of_the_file(
    machine: Machine, tmp_path: Path, name: str, is_open: bool
) -> None:
    """A queue that the file leaves out has no effect on the default, although the file may describe its nodes."""
    left_out = QueueFacts(name, "x", [Nodes(2, 8, gpus=4)], open=is_open, max_walltime="2h")
    short = QueueFacts("short", "x", [Nodes(2, 8)], default=True, open=True, max_walltime="45s")
    unknown = QueueFacts("unseen", "x", [], open=True, max_walltime="30m")
    site = site_of(render(Cluster("flux", "x", "m", [left_out, short, unknown], {})), tmp_path)
    assert name not in site.queues and str(site.walltime) == site.queues[next(iter(site.queues))].max_walltime
