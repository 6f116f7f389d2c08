"""Functions that start ranks on virtual hosts and return their results."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity
from hpcbench.testing.hosts import Hosts

WORKER = Path(__file__).with_name("worker.py")
Task = tuple[str | None, dict[str, Any]]
"""A link rate (None without a limit) and a run file."""
LONGEST = 1800.0
"""Timeout in seconds for one start of the ranks."""


def run_files(study: Path, settings: Sequence[str], *, ranks_a_host: int, busy: bool = False) -> list[dict[str, Any]]:
    """Make the run files of a study: repeat by repeat, cell by cell, with the schemes in rotated order.

    Parameters
    ----------
    settings
        Settings ``KEY=VALUE`` that override the study's settings.
    busy
        Whether other programs use the cores as well, so that waiting ranks must not occupy them.
    """
    runs = expand(load_study(study, list(settings)), Capacity("virtual hosts", ranks_a_host, ranks_a_host))
    shared = busy or runs[0].size.layout.ranks > len(os.sched_getaffinity(0))
    return [
        run_file(run, site="hosts", threads=1, oversubscribe=shared, device="cpu", base=study.parent) for run in runs
    ]


def train(hosts: Hosts, tasks: Sequence[Task], *, ranks_a_host: int) -> list[dict[str, Any]]:
    """Start the ranks once, train all runs one after the other, and return the results in this order.

    Raises
    ------
    UserError
        A rank failed, or replicas differ, so the numbers are invalid.
    """
    rates = [rate for rate, _ in tasks]
    hosts.set_rate(rates[0])
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "rates").write_text(json.dumps(rates))
        for k, (_, run) in enumerate(tasks):
            (Path(directory) / f"{k:04}.json").write_text(json.dumps(run))
        # If a rank fails, end all ranks, which would wait for it forever.
        command = [sys.executable, "-m", "mpi4py", str(WORKER), directory]
        ranks = hosts.count * ranks_a_host
        with _limits(hosts, Path(directory), rates) as refused:
            try:
                done = hosts.run(command, ranks=ranks, ranks_per_host=ranks_a_host, timeout=LONGEST)
            except subprocess.TimeoutExpired:
                raise UserError(f"the ranks did not end within {LONGEST:.0f} s: --set train.steps=...") from None
    if refused:
        raise refused[0]
    if done.returncode:
        raise UserError(f"the ranks ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if [result["scheme"] for result in results] != [run["scheme"]["name"] for _, run in tasks]:
        raise UserError(f"{len(tasks)} runs were asked for, and the ranks printed {len(results)} results")
    if differ := [result["scheme"] for result in results if not result["replicas_agree"]]:
        raise UserError(f"replicas differ after training with {', '.join(differ)}: the numbers mean nothing")
    return [
        {"rate": rate, "repeat": run["repeat"], "cell": run["cell"], **result}
        for (rate, run), result in zip(tasks, results, strict=True)
    ]


@contextmanager
def _limits(hosts: Hosts, directory: Path, rates: Sequence[str | None]) -> Iterator[list[UserError]]:
    """Set the link rate of each run when the ranks request it (see worker.py). Return errors."""
    ended, refused = threading.Event(), list[UserError]()

    def answer() -> None:
        while not ended.wait(0.02):
            for asked in directory.glob("*.asked"):
                try:
                    hosts.set_rate(rates[int(asked.stem)])
                except UserError as error:
                    refused.append(error)
                    return
                asked.unlink()

    thread = threading.Thread(target=answer, name="limits")
    thread.start()
    try:
        yield refused
    finally:
        ended.set()
        thread.join()
