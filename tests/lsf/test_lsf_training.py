"""Tests of real training ranks, started by the scripts of shipped LSF sites: submission, polling and report."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_sites import Place, launch_lines, read_report, states, wait_until_over
from fakes.hosts import why_not

from hpcbench.contract.state import State
from hpcbench.files import read_json

REAL: dict[str, Any] = {"ranks_per_node": 2, "layout": {"tp": 1, "pp": 2}}
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
LINES = {
    "lassen": "lrun -N2 -T2 -M -gpu",
    "summit": "jsrun -n 4 -r 2 -a 1 -c 21 -g 0 -b packed:21 -d packed --smpiargs=-gpu",
    "lsf-cluster": f"{MPIEXEC} -n 4 -ppn 2 -bind-to none",
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["lassen", "summit", "lsf-cluster"])
def test_a_study_trains(
    place: Callable[..., Place],
    capsys: pytest.CaptureFixture[str],
    need: Callable[[str | None], None],
    name: str,
) -> None:
    need(why_not())
    # Open MPI's mpirun cannot start ranks that are built with this machine's MPICH
    site = {"launcher": {"kind": "mpich", "program": MPIEXEC}} if name == "lsf-cluster" else {}
    here = place(name, real=True, site=site)
    schemes = ["baseline", "naive-mpc"] if name == "lassen" else ["baseline"]
    here.write_study(**REAL, matrix={"scheme": schemes})
    root = here.submit().root
    assert launch_lines(root) == [LINES[name]]
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.COMPLETED] * len(schemes), [
        (root / "runs" / run / "err.txt").read_text(encoding="utf-8") for run in tracked.runs
    ]
    assert tracked.jobs["j0001-r1"].state is State.COMPLETED
    mark = read_json(root / "jobs" / "j0001-r1" / "status.json")
    assert mark is not None
    assert (mark["id"], mark["hosts"]) == ("1", ["node1", "node2"])
    for run in tracked.runs:
        log = (root / "runs" / run / "log.txt").read_text(encoding="utf-8")
        assert log.count("step ") >= 9
    status, shown = read_report(capsys, root)
    assert status == 0
    assert "4 ranks" in shown
    assert "baseline" in shown
    assert ("naive-mpc" in shown) is (name == "lassen")
