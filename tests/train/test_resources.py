"""Tests of the resources that a run's log contains: slow hosts, memory and hardware."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_stop_and_resume import RUN

from hpcbench.contract.events import Event
from hpcbench.contract.layout import Layout
from hpcbench.contract.log_line import parse
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.step_line import Step
from hpcbench.contract.training import Data
from hpcbench.train import machine
from hpcbench.train.resources import by_host, peak_resident

WORKER = Path(__file__).with_name("slow_worker.py")
SLEEP = 0.25


@pytest.fixture(scope="module")
def records(tmp_path_factory, mpi_run):
    """Return the records of a run on 4 ranks and 2 hosts, with evaluations between steps. The last rank is slow."""
    folder = tmp_path_factory.mktemp("slow")
    text = folder / "text"
    text.write_bytes(bytes(range(256)) * 1500)
    run = RUN.changed(
        data=Data(source="file", path=str(text), valid_fraction=0.5),
        train=RUN.train.changed(steps=5, warmup_steps=2, global_batch=4, eval_every=2),
        layout=Layout(dp=2, tp=2, pp=1),
        scheme=NamedScheme(
            name="zfp", algorithm="two-shot", default="none", rules=[Rule(dimension="DP", codec="zfp:8", feedback=True)]
        ),
        ranks=4,
    )
    (folder / "run.json").write_text(json.dumps(run.content()))
    done = mpi_run(4, WORKER, str(folder / "run.json"), "3", str(SLEEP))
    assert done.returncode == 0, done.stderr
    return [parse(line, i) for i, line in enumerate(done.stdout.splitlines(), 1)]


def event(records, name):
    (raw,) = [record.raw for record in records if isinstance(record, Event) and record.name == name]
    return raw


def test_the_slow_host_is_reported_and_waiting_hosts_are_not(records):
    event_ = event(records, "hosts")
    assert (event_["from_step"], event_["to_step"]) == (3, 5)
    fast, slow = event_["hosts"]
    assert [(host["host"], host["ranks"]) for host in (fast, slow)] == [("n0", 2), ("n1", 2)]
    assert slow["compute_s"] >= SLEEP / 2, "one of its two ranks sleeps in each step"
    assert fast["compute_s"] < slow["compute_s"] / 2
    assert fast["over_peers"] < slow["over_peers"]
    steps = [record.seconds for record in records if isinstance(record, Step)]
    assert min(steps) >= SLEEP, "all ranks took the time of the slow one"


def test_channels_count_the_bytes_of_the_step_lines_and_no_others(records):
    """Evaluations and loss sums use the same channels between steps, but their bytes must not be counted."""
    assert not [name for name in event(records, "traffic") if name.startswith("host")], "nothing is offloaded"
    channels = event(records, "traffic")["channels"]
    steps = [record for record in records if isinstance(record, Step) and record.step >= 3]
    assert len([record for record in records if isinstance(record, Event) and record.name == "evaluation"]) == 3
    for name in ("message_bytes", "wire_bytes"):
        assert sum(channel[name] for channel in channels) == sum(getattr(step, name) for step in steps) > 0
    (dp,) = [channel for channel in channels if channel["dimension"] == "DP"]
    assert sum(dp["algorithms"].values()) * 4 == dp["calls"]
    exposed = sum(channel["exposed_s"] for channel in channels)
    assert exposed < 4 * sum(step.seconds for step in steps)


def test_memory_is_that_of_the_ranks(records):
    memory = event(records, "memory")
    recorded = {f"device_{what}_bytes" for what in ("parameters", "gradients", "optimizer")} | {"host_residuals_bytes"}
    assert set(memory) == {"event", "host_rank_bytes", "host_bytes"} | recorded, (
        "without a GPU no peak memory of one is logged"
    )
    assert memory["host_residuals_bytes"] == 2 * memory["device_parameters_bytes"], "residuals of both hops, in fp32"
    assert memory["device_optimizer_bytes"] == 3 * memory["device_parameters_bytes"] // 2, "ZeRO-1 over two ranks"
    # an interpreter that has imported PyTorch, independent of earlier tests
    asked = (
        "import torch, pathlib; print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    child_bytes = 1024 * int(
        subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True, text=True).stdout
    )
    assert child_bytes / 4 < memory["host_rank_bytes"] < child_bytes * 8
    assert memory["host_rank_bytes"] < memory["host_bytes"] <= 4 * memory["host_rank_bytes"]


def test_memory_is_that_of_the_process(tmp_path):
    """If a large process starts a small one, ``ru_maxrss`` of the small process is that of the large process."""
    status = tmp_path / "status"
    status.write_text("VmPeak:\t  999 kB\nVmHWM:\t   1234 kB\nVmRSS:\t 1 kB\n")
    assert peak_resident(status) == 1234 * 1024
    assert peak_resident(tmp_path / "none") > 1 << 20, "without the file the kernel's other count"
    code = "x = bytearray(400 << 20); x[::4096] = b'1' * len(x[::4096]); import subprocess, sys; "
    code += "print(subprocess.run([sys.executable, '-c', sys.argv[1]], capture_output=True, text=True).stdout)"
    small = "import pathlib; print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    output = subprocess.run([sys.executable, "-c", code, small], capture_output=True, check=True, text=True).stdout
    assert int(output) << 10 < 100 << 20


def test_processors_are_logged_once_per_host(records):
    about = event(records, "environment")
    assert [host["host"] for host in about["hosts"]] == ["n0", "n1"]
    assert about["torch"].startswith(about["packages"]["torch"].partition("+")[0])


def test_stages_of_a_pipeline_are_compared_with_the_same_stage():
    """The last stage computes twice as long, but not because its hosts are slow.

    Compared with the other hosts of its stage, only n3 is slow.
    """
    names = ["n0", "n1", "n2", "n3"]
    rows = by_host([name for name in names for _ in range(2)], [1, 1, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1])
    assert [row.compute_s for row in rows] == [1, 1, 2, 3]
    assert [row.over_peers for row in rows] == [1, 1, 0.8, 1.2]
    alone = by_host(["n0", "n0", "n1", "n1"], [1, 1, 5, 5], [0, 0, 1, 1])
    assert [row.over_peers for row in alone] == [None, None]


# ---------------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("cpu_info", "cpu", "mhz"),
    [
        ("model name\t: AMD EPYC 7763\ncpu MHz\t\t: 2000.0\n\ncpu MHz\t\t: 3000.5\n", "AMD EPYC 7763", 2500.2),
        ("cpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n", "POWER9, altivec supported", 3800.0),
        ("", None, None),
    ],
)
def test_processors_by_the_kernels_names(tmp_path, cpu_info, cpu, mhz):
    (tmp_path / "cpuinfo").write_text(cpu_info)
    (tmp_path / "scaling_governor").write_text("performance\n")
    (tmp_path / "scaling_max_freq").write_text("3500000\n")
    host = machine.host(gpus=False, cpu_info=tmp_path / "cpuinfo", scaling=tmp_path)
    assert (host.get("cpu"), host.get("cpu_mhz")) == (cpu, mhz)
    assert (host["governor"], host["cpu_max_mhz"]) == ("performance", 3500)
    bare = machine.host(gpus=False, cpu_info=tmp_path / "none", scaling=tmp_path / "none")
    assert set(bare) == {"kernel"}


def test_values_that_nvidia_smi_lacks_are_left_out():
    output = (
        "NVIDIA H200, GPU-1, 580.65.06, 345, 1980, 3201, 700.00, Default\n"
        "\nTesla V100-SXM2-16GB, GPU-2, 580.65.06, [N/A], 1530, [Not Supported], 300.00, Exclusive_Process\n"
        "No devices were found\n"
    )
    first, second = machine.devices(output)
    assert first == {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "driver": "580.65.06",
        "clock_mhz": 345,
        "max_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "power_limit_w": 700,
        "compute_mode": "Default",
    }
    assert {"clock_mhz", "memory_clock_mhz"}.isdisjoint(second) and second["max_clock_mhz"] == 1530


def test_loaded_modules_are_listed():
    assert machine.job({"LOADEDMODULES": "gcc/12.2:cuda/12.4:"})["modules"] == ["gcc/12.2", "cuda/12.4"]
    assert "modules" not in machine.job({})
