"""Entry point of a fake's programs. The entry point records each call, injects faults, and runs the program."""

import importlib
import io
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.state import Job, State, Store

MODULES = {
    "bsub": "lsf.bsub",
    "bjobs": "lsf.bjobs",
    "bhist": "lsf.bhist",
    "bkill": "lsf.control",
    "brequeue": "lsf.control",
    "bstop": "lsf.control",
    "bresume": "lsf.control",
    "blaunch": "lsf.blaunch",
    "jsrun": "lsf.jsrun",
    "lrun": "lsf.lrun",
    "flux": "flux.program",
}
PROGRAMS = {
    "lsf": ("bsub", "bjobs", "bhist", "bkill", "brequeue", "bstop", "bresume", "blaunch", "jsrun", "lrun"),
    "flux": ("flux",),
}
LAUNCHERS = ("blaunch", "jsrun", "lrun")
"""Launchers, whose output is not recorded because it is the output of the started processes."""
_REGISTRY: dict[str, Callable[["Call"], int]] = {}


class RefusedError(Exception):
    """A refused call: the program prints the text on stderr and exits with the status."""

    def __init__(self, text: str, status: int = 255) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Call:
    """A call of a program."""

    program: str
    argv: list[str]
    store: Store
    read_stdin: Callable[[], bytes] = field(repr=False)

    def warn(self, text: str) -> None:
        """Print a line on stderr."""
        print(text, file=sys.stderr)


def register_program(name: str) -> Callable[[Callable[[Call], int]], Callable[[Call], int]]:
    """Register a program's function."""

    def register(work: Callable[[Call], int]) -> Callable[[Call], int]:
        _REGISTRY[name] = work
        return work

    return register


def run(directory: str, program: str, argv: Sequence[str]) -> int:
    """Run `program` with these arguments, and return its exit status."""
    store = Store(directory)
    importlib.import_module(f"fakes.{MODULES[program]}")
    taken: list[bytes] = []

    def read_stdin() -> bytes:
        if not taken:
            taken.append(sys.stdin.buffer.read())
        return taken[0]

    faults = take_faults(store, program)
    begun = next((float(fault["seconds"]) for fault in faults if fault["kind"] == "slow"), 0.0)
    time.sleep(begun)
    output, errors = io.StringIO(), io.StringIO()
    try:
        if any(fault["kind"] == "fail" for fault in faults):
            status = 255
        elif program in LAUNCHERS or argv[:1] in (["run"], ["alloc"]):
            store.record(program, argv, None)
            return _REGISTRY[program](Call(program, list(argv), store, read_stdin))
        else:
            with redirect_stdout(output), redirect_stderr(errors):
                status = _REGISTRY[program](Call(program, list(argv), store, read_stdin))
            for fault in faults:
                if fault["kind"] == "resend":
                    _repeat_call(
                        Call(program, list(argv), store, read_stdin), int(fault["copies"]), float(fault["seconds"])
                    )
    except RefusedError as refusal:
        status = refusal.status
        print(refusal, file=errors if program not in LAUNCHERS else sys.stderr)
    store.record(program, argv, taken[0] if taken else None)
    return _answer(output.getvalue(), errors.getvalue(), status, faults)


def _repeat_call(call: Call, copies: int, seconds: float) -> None:
    """Repeat the call until it is accepted, as LSF's programs do if a daemon is too busy to respond."""
    for _ in range(copies - 1):
        print("batch system daemon not responding ... still trying", file=sys.stderr, flush=True)
        time.sleep(seconds)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _REGISTRY[call.program](call)


def take_faults(store: Store, program: str) -> list[dict[str, Any]]:
    """Return the faults that apply to this call, and decrement the remaining count of each counted fault."""
    with store.change() as state:
        matching = [fault for fault in state.faults if fault.get("program") == program and fault["job"] is None]
        for fault in matching:
            _count_down(state, fault)
    return matching


def take_job_fault(state: State, job: Job, kind: str) -> dict[str, Any] | None:
    """Return the fault of this kind for the job, or for all jobs, and decrement its count."""
    for fault in state.faults:
        if fault["kind"] == kind and fault["job"] in ("*", str(job.id), job.key):
            _count_down(state, fault)
            return fault
    return None


def _count_down(state: State, fault: dict[str, Any]) -> None:
    if fault["times"] is not None:
        fault["times"] -= 1
        if fault["times"] <= 0:
            state.faults.remove(fault)


def _answer(output: str, errors: str, status: int, faults: list[dict[str, Any]]) -> int:
    """Print the program's output, changed by the faults."""
    for fault in faults:
        kind = fault["kind"]
        if kind == "banner":
            output = "".join(f"{line}\n" for line in fault["lines"]) + output
        elif kind == "noise":
            errors = "".join(f"{line}\n" for line in fault["lines"]) + errors
        elif kind == "fail":
            output, errors, status = "", f"{fault['text']}\n", int(fault["status"])
        elif kind == "status":
            status = int(fault["status"])
        elif kind == "empty":
            output, errors, status = "", "", 0
        elif kind == "mute":
            output, errors, status = "", f"{fault['text']}\n", 255
    sys.stderr.write(errors)
    sys.stdout.write(output)
    sys.stdout.flush()
    for fault in faults:
        if fault["kind"] == "hang":
            time.sleep(float(fault["seconds"]))
    return status


def main(directory: str) -> int:
    """Run a program that a fake puts on PATH. The first argument is the program's name."""
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    return run(directory, Path(sys.argv[1]).name, sys.argv[2:])
