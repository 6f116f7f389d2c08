"""Measurements of this machine, which predictions use.

The measurements cover layers and matrix products on a core that ranks share, the links and codecs of the hosts, and the
processor time of messages.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict import measured_tables
from hpcbench.testing.hosts import Hosts
from predicted.studies import Shape

TRIAL = "200mbit"
"""Rate of the only link table in older measurements."""
CODECS = ("bf16", "int8", "zfp:8", "zfp:16")


def measure(
    hosts: Hosts, shape: Shape, directory: Path, rates: Sequence[str], *, tiny: bool
) -> measured_tables.MeasuredTables:
    """Write the tables of `hpcbench bench` to a directory, and return them.

    Links are measured at each rate and without a limit.
    """
    script = (
        "import sys, torch; torch.set_num_threads(1); from pathlib import Path;"
        "from hpcbench.bench.gemm_main import bench_gemm;"
        "bench_gemm(site='hosts', device='cpu', precision='fp32', hidden=list(map(int, sys.argv[2].split(','))),"
        "tokens=list(map(int, sys.argv[3].split(','))), repeats=int(sys.argv[4]), beside=int(sys.argv[5]),"
        "out=Path(sys.argv[1]))"
    )
    sizes = ("64", "64", "1", "0") if tiny else ("128,256,512", "64,256,512", "3", str(shape.ranks - 1))
    done = subprocess.run([sys.executable, "-c", script, str(directory), *sizes], capture_output=True, text=True)
    _check(done, "bench gemm")
    program = "from hpcbench.bench.network_main import bench_network; from pathlib import Path; import sys;"
    program += "sys.exit(bench_network(sys.argv[5:], max_mb=float(sys.argv[2]), repeats=int(sys.argv[3]),"
    program += "outputs=[Path(sys.argv[1])], between_work=sys.argv[4] == 'None'))"
    sizes = ("0.0625", "1") if tiny else ("4", "3")
    links = [(of_rate(rate), rate, CODECS[:1]) for rate in rates if rate != TRIAL]
    for name, rate, codecs in (
        (measured_tables.NETWORK, TRIAL, CODECS),
        *links,
        (measured_tables.CORES, None, CODECS[:1]),
    ):
        hosts.set_rate(rate)
        command = [sys.executable, "-m", "mpi4py", "-c", program, str(directory / name), *sizes, str(rate), *codecs]
        done = hosts.run(command, ranks=shape.ranks, ranks_per_host=shape.ranks_a_host, timeout=900.0)
        _check(done, "bench network")
    return measured_tables.read_tables(directory, asked_for=True)


def of_rate(rate: str) -> str:
    """Return the name of the link table for a rate."""
    return f"network-{rate}.json"


def links(directory: Path, rates: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the link table of each measured rate. Older measurements contain no tables by rate."""
    files = {rate: directory / (measured_tables.NETWORK if rate == TRIAL else of_rate(rate)) for rate in rates}
    return {rate: json.loads(file.read_text(encoding="utf-8")) for rate, file in files.items() if file.is_file()}


def trace(hosts: Hosts, shape: Shape, runs: list[dict[str, Any]]) -> list[list[int]]:
    """Return the peak bytes of every rank in every run."""
    worker = Path(__file__).with_name("memory_worker.py")
    hosts.set_rate(None)
    with tempfile.TemporaryDirectory() as directory:
        for k, run in enumerate(runs):
            (Path(directory) / f"{k:04}.json").write_text(json.dumps(run))
        command = [sys.executable, "-m", "mpi4py", str(worker), directory]
        done = hosts.run(command, ranks=shape.ranks, ranks_per_host=shape.ranks_a_host, timeout=1800.0)
    _check(done, "the trace of allocations")
    return [json.loads(line)["peaks"] for line in done.stdout.splitlines() if line.startswith("{")]


def _check(done: subprocess.CompletedProcess[str], what: str) -> None:
    if done.returncode:
        raise UserError(f"{what} ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
