"""Fixtures that run a benchmark in its tiny form, as a user starts it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from printed import Printed, run
from stored_results import KEYS, head


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Printed]:
    """Function that runs ``benchmarks/SCRIPT --tiny ARGUMENTS``.

    The script must succeed and first print its provenance.
    """

    def ran(script: str, *arguments: str) -> Printed:
        done = run(script, *arguments)
        assert done.returncode == 0, f"{script} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        lines = done.stdout.splitlines()
        output = head(lines)
        assert list(output) == list(KEYS), f"{script} begins with {lines[:3]}"
        assert output["command"] == " ".join(["python", f"benchmarks/{script}", "--tiny", *arguments])
        assert "core" in output["machine"] and "Python 3." in output["machine"]
        return Printed(lines[len(KEYS) :])

    return ran


@pytest.fixture(scope="session")
def refused() -> Callable[..., str]:
    """Function that runs a benchmark without one of its requirements.

    The benchmark must print one line and exit with status 2. This machine's GPUs are hidden.
    """

    def ran(script: str, *arguments: str) -> str:
        done = run(script, *arguments, CUDA_VISIBLE_DEVICES="")
        assert done.returncode == 2, f"{script} ended with {done.returncode}:\n{done.stdout}{done.stderr[-3000:]}"
        (line,) = done.stderr.splitlines()
        assert done.stdout == "" and line.startswith(f"{Path(script).stem}")
        return line

    return ran
