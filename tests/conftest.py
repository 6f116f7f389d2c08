"""Starts real MPI programs: a test that needs ranks names a worker script and reads the JSON lines that it prints."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def run_ranks(
    n: int, script: Path, *arguments: str, timeout: float = 900, bind: str = "none", abort: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a Python script on `n` ranks, one thread each, bound as the launcher's option says.

    With `abort`, a rank that raises ends all of them, which would wait for it forever.
    """
    mpiexec = str(MPIEXEC) if MPIEXEC.exists() else shutil.which("mpiexec")
    assert mpiexec, "no mpiexec beside the interpreter nor on PATH: pip install 'hpcbench[local]'"
    program = [sys.executable, *(["-m", "mpi4py"] if abort else []), str(script), *arguments]
    command = [mpiexec, "-n", str(n), "-bind-to", bind, *program]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="session")
def mpi_run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a worker whose exit status is of interest; see `run_ranks`."""
    return run_ranks


@pytest.fixture(scope="session")
def mpi_results(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    """Runs a worker once a session for each set of arguments; gives the JSON lines of its standard output."""
    cache: dict[tuple[Any, ...], list[dict[str, Any]]] = {}

    def results(n: int, script: Path, *arguments: str) -> list[dict[str, Any]]:
        key = (n, script, arguments)
        if key not in cache:
            done = run_ranks(n, script, *arguments, abort=True)
            assert done.returncode == 0, f"{script.name} exited with {done.returncode}:\n{done.stderr[-4000:]}"
            assert done.stderr == "", f"{script.name} wrote to standard error:\n{done.stderr[-4000:]}"
            cache[key] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return cache[key]

    return results


@pytest.fixture(scope="session")
def need() -> Callable[[str | None], None]:
    """Skips the test if it is given a reason why it cannot run here; in CI everything can be had, so there it fails."""

    def check(reason: str | None) -> None:
        if reason and os.environ.get("CI"):
            pytest.fail(reason)
        if reason:
            pytest.skip(reason)

    return check


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI everything can be had but a GPU: a test that was skipped for another reason has shown nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [report for report in reporter.stats.get("skipped", []) if "gpu" not in report.keywords]
    if os.environ.get("CI") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
