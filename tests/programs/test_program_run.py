"""The command `hpcbench run`: wrong input is one line, and a program that says nothing is no success.

Real programs are run in test_session.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.contract.cut import Cut
from hpcbench.contract.events import (
    Calls,
    Configuration,
    End,
    Event,
    Other,
    Start,
    Traffic,
    UnknownGroup,
    parse,
)
from hpcbench.errors import UserError
from hpcbench.program.command import run as run_command


def run(*options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "hpcbench", "run", *options, "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no scheme: --scheme naive-int8"),
        (["--scheme", "naive-int9"], "naive-int9"),
        (["--scheme", "onebit-adam"], "brings its own optimizer"),
        (["--dry", "--groups", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_input_is_one_line(options: list[str], words: str) -> None:
    done = run(*options, command=["true"])
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_command_that_is_not_there_and_a_program_that_says_nothing() -> None:
    assert "no such command" in run("--dry", command=["no-such-launcher"]).stderr
    done = run("--dry", command=["true"])
    assert done.returncode == 1
    assert "no rank has reported" in done.stderr
    assert run("--dry", command=["sh", "-c", "exit 7"]).returncode == 7


ROWS = """\
import json, os, sys
row = dict(group="odd \u2028 one", ranks=2, dimension="unknown", call="all-reduce", dtype="float32", codec="")
row |= dict(why="unknown group", calls=3, call_bytes=300, message_bytes=0, wire_bytes=0, coded_bytes=0)
row |= dict(network_bytes=0, encode_s=0.0, decode_s=0.0, lost_overflows=0)
out = json.loads(os.environ["HPCBENCH_TORCH"])["out"]
for rank in range(int(sys.argv[1])):
    with open(f"{out}/rank-{rank}.json", "w") as file:
        json.dump(dict(rank=rank, world=2, rows=[row]), file)
sys.exit(int(sys.argv[2]))
"""
"""A program whose ranks report, without PyTorch: how many of two do, and its exit status."""


def logged(log: Path, *command: str) -> tuple[int, list[Event]]:
    status = run_command(command, scheme=None, groups=None, dry=True, out=None, log=log)
    lines = log.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    events = [parse(line, number) for number, line in enumerate(lines, 1)]
    assert not [event for event in events if isinstance(event, Cut | Other)]
    return status, [event for event in events if isinstance(event, Event)]


@pytest.mark.parametrize(
    ("ranks", "status", "state", "reason"),
    [
        (2, 0, "completed", None),
        (2, 3, "failed", "exit status 3"),
        (1, 0, "completed", "1 of 2 ranks have reported"),
        (0, 0, "failed", "no rank has reported"),
        (0, 4, "failed", "exit status 4, no rank has reported"),
    ],
)
def test_a_log_says_what_was_sent_and_how_the_program_ended(
    tmp_path: Path, ranks: int, status: int, state: str, reason: str | None
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("of an earlier run\n", encoding="utf-8")
    returned, events = logged(log, sys.executable, "-c", ROWS, str(ranks), str(status))
    assert returned == (status or int(not ranks))
    sent = [Traffic, Calls, UnknownGroup] if ranks else []
    assert [type(event) for event in events] == [Start, Configuration, *sent, End]
    end = events[-1]
    assert isinstance(end, End) and (end.state, end.reason) == (state, reason)
    if ranks:
        channels, calls = events[2], events[3]
        assert isinstance(channels, Traffic) and channels.channels and channels.from_step is None
        assert channels.channels[0].message_bytes == 300 * ranks  # of two ranks, half of the bytes there and back
        assert isinstance(calls, Calls) and calls.rows
        assert (calls.rows[0].group, calls.rows[0].why) == ("odd \u2028 one", "unknown group")
        assert calls.rows[0].call_bytes == 300 * ranks


def test_a_log_that_cannot_be_written_costs_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--log .*: No such file or directory: name a file in a directory"):
        logged(tmp_path / "nowhere" / "log", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert not (tmp_path / "ran").exists()


def test_a_groups_file_with_a_fault_names_its_line(tmp_path: Path) -> None:
    groups = tmp_path / "groups.yaml"
    groups.write_text("min_bytes: 4096\ngroups:\n  - {match: '[', dimension: DP}\n", encoding="utf-8")
    done = run("--dry", "--groups", str(groups), command=["true"])
    assert done.returncode == 2
    assert f"{groups}:3" in done.stderr


def test_a_damaged_setting_never_breaks_the_import_of_torch_and_the_kernels_need_no_mpi() -> None:
    environment = {**os.environ, "HPCBENCH_TORCH": "{"}
    code = (
        "import sys, torch; sys.modules['mpi4py'] = None; import hpcbench.torch.intercept; print(torch.ones(1).item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "1.0\n")
    assert "PyTorch's calls are left alone" in done.stderr


def test_the_command_and_the_package_import_neither_torch_nor_mpi_before_they_need_them() -> None:
    code = (
        "import sys, hpcbench.program.command, hpcbench.torch.autoload, hpcbench.torch.dimensions;"
        "print([m for m in ('torch', 'mpi4py', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
