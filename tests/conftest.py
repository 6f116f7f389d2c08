"""Fixtures for all tests: crowds (groups of tests that share a process) and MPI ranks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import crowds
import pytest
from hypothesis import settings
from start_ranks import RankServer, run_ranks

pytest_plugins = ["needs", "unsteady"]

# The default limit of 200 ms per example is too short on a busy machine.
settings.register_profile("patient", parent=settings(), deadline=None)
settings.load_profile("patient")

# Otherwise this process, and programs started by tests, would compile all modules each time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# pytest-xdist passes the terminal's width to its workers, which would truncate tables.
os.environ.pop("COLUMNS", None)

# Commands that are started with nohup, or in the background by a shell, ignore these signals, and so would all programs
# started by tests. exec resets a handler to the default.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, lambda *_: None),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_configure(config: pytest.Config) -> None:
    for marker in crowds.markers():
        config.addinivalue_line("markers", marker)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `make test-long`, import only files with long tests.

    Without this restriction, each test process would import all 340 files.
    """
    is_other = config.option.markexpr == "long" and collection_path.suffix == ".py"
    return True if is_other and not crowds.may_be_long(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    crowds.refuse_hidden(items)
    crowds.assign(items)


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """Server that forks ranks with all modules already imported."""
    server = RankServer()
    yield server
    server.end()


@pytest.fixture(scope="session")
def job_ranks() -> Iterator[RankServer]:
    """Server for ranks started by job scripts (see `RankServer.python`).

    The tests that use this server stay in their own crowds.
    """
    server = RankServer()
    yield server
    server.end()


@pytest.fixture(scope="session")
def mpi_run(rank_server: RankServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Function that runs a worker (see `run_ranks`). Tests that kill ranks pass ``server=None``."""
    return partial(run_ranks, server=rank_server)


@pytest.fixture(scope="session")
def mpi_results(rank_server: RankServer) -> Callable[..., list[dict[str, Any]]]:
    """Function that runs a worker and returns its JSON lines. Results are cached per session and arguments."""
    cache: dict[tuple[Any, ...], list[dict[str, Any]]] = {}

    def results(n: int, script: Path, *arguments: str) -> list[dict[str, Any]]:
        key = (n, script, arguments)
        if key not in cache:
            done = run_ranks(n, script, *arguments, abort=True, server=rank_server)
            assert done.returncode == 0, f"{script.name} exited with {done.returncode}:\n{done.stderr[-4000:]}"
            assert done.stderr == "", f"{script.name} wrote to standard error:\n{done.stderr[-4000:]}"
            cache[key] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return cache[key]

    return results
