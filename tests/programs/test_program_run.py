"""Tests of `hpcbench run`: invalid input gives a one-line error, and a program without output does not succeed.

test_session.py runs real programs.
"""

import json
import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import (
    Configuration,
    End,
    Event,
    ProgramCalls,
    Start,
    TrafficTotals,
    UnknownEvent,
    UnknownGroup,
    parse_event,
)
from hpcbench.errors import UserError
from hpcbench.programs.command import run as run_command


def run(*options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "hpcbench", "run", *options, "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no scheme given: add --scheme, for example --scheme naive-int8"),
        (["--scheme", "naive-int9"], "naive-int9"),
        (["--scheme", "onebit-adam"], "sets an optimizer"),
        (["--dry", "--groups", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_input_is_one_line(options: list[str], message: str) -> None:
    done = run(*options, command=["true"])
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_a_missing_command_and_a_program_without_output() -> None:
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
        json.dump(dict(rank=rank, world=2, rows=[row | other for other in json.loads(sys.argv[3])]), file)
sys.exit(int(sys.argv[2]))
"""
"""A program whose ranks report without PyTorch. Arguments: number of reporting ranks, exit status, invalid rows."""


def logged(log: Path, *command: str, scheme: str | None = None) -> tuple[int, list[Event]]:
    status = run_command(command, scheme=scheme, groups=None, dry=scheme is None, out=None, log=log)
    lines = log.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    events = [parse_event(line, number) for number, line in enumerate(lines, 1)]
    assert not [event for event in events if isinstance(event, DamagedLine | UnknownEvent)]
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
def test_a_log_contains_the_sent_bytes_and_the_end_of_the_program(
    tmp_path: Path, ranks: int, status: int, state: str, reason: str | None
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("of an earlier run\n", encoding="utf-8")
    returned, events = logged(log, sys.executable, "-c", ROWS, str(ranks), str(status), "[{}]")
    assert returned == (status or int(not ranks))
    sent = [TrafficTotals, ProgramCalls, UnknownGroup] if ranks else []
    assert [type(event) for event in events] == [Start, Configuration, *sent, End]
    end = events[-1]
    assert isinstance(end, End) and (end.state, end.reason) == (state, reason)
    if ranks:
        channels, calls = events[2], events[3]
        assert isinstance(channels, TrafficTotals) and channels.channels and channels.from_step is None
        assert channels.channels[0].message_bytes == 300 * ranks  # with two ranks, half of the bytes in each direction
        assert isinstance(calls, ProgramCalls) and calls.rows
        assert (calls.rows[0].group, calls.rows[0].why) == ("odd \u2028 one", "unknown group")
        assert calls.rows[0].call_bytes == 300 * ranks


@pytest.mark.parametrize(
    ("scheme", "odd", "reasons"),
    [
        ("naive-int8", [{"group": "odd"}], ["the dimension of the group is unknown"]),
        (
            "naive-int8",
            [{"why": "outside backward", "call_bytes": 4000}, {"why": "small"}, {"why": "small", "call": "gather"}],
            ["outside a backward pass", "small"],
        ),
        ("naive-int8", [{"why": "plan", "codec": "int8:256"}], []),
        ("baseline", [{"why": "no codec"}], []),
        ("auto-int8", [{"why": "small"}], ["small"]),
        (
            "auto-int8",
            [{"why": "device cuda", "call_bytes": 6_000_000}, {"why": "type"}],
            ["on a GPU, in a group without NCCL", "not a 16- or 32-bit float type"],
        ),
        ("auto-int8", [{"why": "small"}, {"why": "plan"}], []),
    ],
)
def test_a_scheme_that_encoded_nothing_is_not_a_success(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scheme: str,
    odd: list[dict[str, object]],
    reasons: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", ROWS, "2", "0", json.dumps(odd)]
    status, events = logged(Path("log.jsonl"), *command, scheme=scheme)
    printed = capsys.readouterr().err
    end = events[-1]
    assert isinstance(end, End)
    if not reasons:
        assert (status, end.state, end.reason) == (0, "completed", None)
        assert "no call was encoded" not in printed
        return
    assert (status, end.state) == (1, "failed")
    sentence, table = printed.split("hpcbench: no call was encoded, so scheme ")[1].split("The reasons:")
    assert f"most bytes were sent exactly ({reasons[0]})" in " ".join(sentence.split())
    assert end.reason is not None and end.reason.startswith("no call was encoded")
    rows = table.strip().split("\n")[1:]
    assert [row.startswith(reason) for row, reason in zip(rows, reasons, strict=True)] == [True] * len(reasons)
    warning = (
        "hpcbench: the dimension of group 'odd' is unknown, so 0.001 MB were sent exactly: give --groups FILE with"
        " groups: [{match:"
    )
    assert (warning in " ".join(printed.split())) == (odd[0].get("group") == "odd")
    assert ("lossy: [sums-outside-backward]" in table) == ("outside a backward pass" in reasons)
    assert scheme in sentence
    sentence = "hpcbench: tensors on GPUs were sent exactly: 12.000 MB were on a GPU, in a group without NCCL.\n"
    on_gpus = sentence in printed
    assert on_gpus == ("cupy-cuda13x" in table) == (odd[0].get("why") == "device cuda")


def test_an_unwritable_log_does_not_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--log .*: No such file or directory: give a file in a writable directory"):
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
    statements = (
        *("import sys, torch", "sys.modules['mpi4py'] = None"),
        *("import hpcbench.programs.intercept", "print(torch.ones(1).item())"),
    )
    code = "; ".join(statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "1.0\n")
    assert "PyTorch's calls are not intercepted" in done.stderr


def test_importing_torch_works_where_only_the_metadata_of_hpcbench_is_visible(tmp_path: Path) -> None:
    """Only the metadata is visible if a program's PYTHONPATH contains the site-packages of an editable installation."""
    entries = metadata.entry_points(group="torch.backends", name="hpcbench")
    assert {entry.module for entry in entries} == {"hpcbench_torch"}
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    code = "import sys, torch; print('hpcbench_torch' in sys.modules, 'hpcbench.programs' in sys.modules)"
    for asked in ({}, {"HPCBENCH_TORCH": "{}"}):
        command = [sys.executable, "-S", "-c", code]  # -S ignores .pth files, like PYTHONPATH
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={**environment, **asked}, check=False
        )
        assert (done.returncode, done.stdout.split()[0]) == (0, "True"), done.stderr
        assert ("PyTorch's calls are not intercepted" in done.stderr) == bool(asked)


def test_the_command_and_the_package_import_neither_torch_nor_mpi_before_they_need_them() -> None:
    modules = ("hpcbench.torch", *(f"hpcbench.programs.{name}" for name in ("command", "autoload", "dimensions")))
    code = f"import sys, {', '.join(modules)};print([m for m in ('torch', 'mpi4py', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
