"""Crowds of tests, and ranks of MPI programs, for all tests."""

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
from start_ranks import RankServer, run_ranks

pytest_plugins = ["needs", "unsteady"]

# Or this process, and programs that tests start, would compile all modules each time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# pytest-xdist hands the terminal's width on to its workers: tables would be cut to it.
os.environ.pop("COLUMNS", None)

# Where a shell starts a command in the background, or nohup does, the command ignores these signals, and so would all
# that tests start; a handler of ours does not outlive exec.
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
    """Import only files with long tests for `make test-long`. Each process of it would import all 340 otherwise."""
    is_other = config.option.markexpr == "long" and collection_path.suffix == ".py"
    return True if is_other and not crowds.may_be_long(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    crowds.refuse_hidden(items)
    crowds.assign(items)


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """Forks ranks that need not import anything."""
    server = RankServer()
    yield server
    server.end()


@pytest.fixture(scope="session")
def job_ranks() -> Iterator[RankServer]:
    """The same for ranks that job scripts start: see `RankServer.python`. Their tests stay in crowds of their own."""
    server = RankServer()
    yield server
    server.end()


@pytest.fixture(scope="session")
def mpi_run(rank_server: RankServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a worker whose exit status is of interest; see `run_ranks`. Tests that kill ranks give ``server=None``."""
    return partial(run_ranks, server=rank_server)


@pytest.fixture(scope="session")
def mpi_results(rank_server: RankServer) -> Callable[..., list[dict[str, Any]]]:
    """Runs a worker once a session for each set of arguments; gives the JSON lines of its standard output."""
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
