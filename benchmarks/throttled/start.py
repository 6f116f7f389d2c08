"""Starts the ranks on virtual hosts and reads what they found."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Room
from hpcbench.testing.hosts import Hosts

WORKER = Path(__file__).with_name("worker.py")
LONGEST = 1800.0
"""Seconds that a start of the ranks may take."""


def run_files(study: Path, settings: Sequence[str], *, ranks_a_host: int) -> list[dict[str, Any]]:
    """Run files of a study: repeat by repeat, cell by cell, schemes in rotated order.

    Parameters
    ----------
    settings
        ``KEY=VALUE`` each, in place of what the study says.
    """
    runs = expand(load_study(study, list(settings)), Room("virtual hosts", ranks_a_host, ranks_a_host))
    shared = runs[0].size.ranks > len(os.sched_getaffinity(0))
    return [
        run_file(run, site="hosts", threads=1, oversubscribe=shared, device="cpu", base=study.parent) for run in runs
    ]


def train(hosts: Hosts, runs: Sequence[dict[str, Any]], *, ranks_a_host: int) -> list[dict[str, Any]]:
    """Train all runs, one after another in one start of the ranks; what was found of each, in their order.

    Raises
    ------
    UserError
        The ranks did not come to their end, or replicas differ: then the numbers mean nothing.
    """
    with tempfile.TemporaryDirectory() as directory:
        for k, run in enumerate(runs):
            (Path(directory) / f"{k:04}.json").write_text(json.dumps(run))
        command = [sys.executable, str(WORKER), directory]
        ranks = hosts.count * ranks_a_host
        try:
            done = hosts.run(command, ranks=ranks, ranks_per_host=ranks_a_host, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise UserError(f"the ranks did not end within {LONGEST:.0f} s: fewer steps (--set train.steps)") from None
    if done.returncode:
        raise UserError(f"the ranks ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if [result["scheme"] for result in results] != [run["scheme"]["name"] for run in runs]:
        raise UserError(f"{len(runs)} runs were asked for, and the ranks printed {len(results)} results")
    if differ := [result["scheme"] for result in results if not result["replicas_agree"]]:
        raise UserError(f"replicas differ after training with {', '.join(differ)}: the numbers mean nothing")
    return [
        {"repeat": run["repeat"], "cell": run["cell"], **result} for run, result in zip(runs, results, strict=True)
    ]
