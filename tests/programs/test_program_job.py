"""Tests of the processes that a job script and a launcher start for a program run, without torch."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.collect.program_log import read_program
from hpcbench.contract.interpose import VARIABLE, Interposition
from hpcbench.contract.mark import Mark
from hpcbench.contract.program import load
from hpcbench.contract.run_state import resolve_run, resolve_unread_run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.state import JobSummary, ResolvedState, State
from hpcbench.errors import UserError
from hpcbench.programs.rank import PLACES, interpreted, meeting_point, place, prepared
from hpcbench.programs.sent import sent_bytes, traffic, unknown

NATIVE = {"name": "baseline", "algorithm": "native", "default": "none", "rules": [], "environment": {}}
INT8 = {**NATIVE, "name": "naive-int8", "algorithm": "encoded", "default": "int8:256"}
PROGRAM = {
    "command": "python play.py {seed}",
    "log": {"line": r"loss (?P<loss>\S+)", "every": 1, "evaluation": None},
    "start": "node",
    "steps": 3,
    "warmup_steps": 0,
    "seed": 7,
    "env": {"MINE": "{ranks} ranks"},
    "values": {},
    "directory": None,
    "groups": {},
}
ROW: dict[str, Any] = {
    "group": "default_pg",
    "ranks": 2,
    "dimension": "DP",
    "call": "all-reduce",
    "dtype": "float32",
    "codec": "int8:256",
    "why": "",
    "calls": 3,
    "call_bytes": 3000,
    "message_bytes": 3000,
    "wire_bytes": 800,
    "coded_bytes": 3000,
    "network_bytes": 0,
    "encode_s": 0.25,
    "decode_s": 0.5,
    "lost_overflows": 0,
}


def written(directory: Path, script: str, scheme: dict[str, Any] = NATIVE, **program: Any) -> Path:
    """Write the run file of a program, and return the directory."""
    directory.mkdir(exist_ok=True)
    (directory / "play.py").write_text(script, encoding="utf-8")
    shape = {"nodes": 1, "ranks_per_node": 2, "cores_per_rank": 1, "gpus_per_rank": "0", "visibility": "one"}
    content = {
        "schema": 1,
        "study": "s",
        "site": "here",
        "run": "r1",
        "repeat": 1,
        "pairing": "r1",
        "cell": {},
        "program": {**PROGRAM, **program},
        "directory": str(directory),
        "scheme": {**scheme, "optimizer": None},
        "ranks": 2,
        "threads": 1,
        "oversubscribe": False,
        "device": "cpu",
        "shape": shape,
        "peak_tflops": {},
    }
    path = directory / "run.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def started(path: Path, *launcher: str) -> "subprocess.Popen[bytes]":
    """Start the process as a job script does, with its log files."""
    command = [sys.executable, "-u", "-m", "hpcbench.programs", str(path), *(launcher or ("env",)), sys.executable]
    with (path.parent / "log.txt").open("wb") as log, (path.parent / "err.txt").open("wb") as errors:
        return subprocess.Popen(command, stdout=log, stderr=errors)


def judged(directory: Path, status: int) -> ResolvedState:
    mark = Mark("ended", exit=status)
    log = read_program(directory / "log.txt", load(directory / "run.json").program.log)
    return resolve_run(directory, directory, mark, JobSummary("j1", State.COMPLETED), log.ending)


def played(directory: Path, script: str, scheme: dict[str, Any] = NATIVE, **program: Any) -> tuple[int, ResolvedState]:
    status = started(written(directory, script, scheme, **program)).wait(60)
    return status, judged(directory, status)


TRAINS = """\
import os, sys
print(sys.argv[1], os.environ["MINE"], "HPCBENCH_TORCH" in os.environ)
for loss in (3, 2, 1): print("loss", loss)
print("and a last line without an end", end="")
"""
REPORTS = f"""\
import json, os
{TRAINS}
out = json.loads(os.environ["HPCBENCH_TORCH"])["out"]
for rank in range(2):
    with open(f"{{out}}/rank-{{rank}}.json", "w") as file:
        json.dump({{"rank": rank, "world": 2, "rows": ROWS}}, file)
"""


def test_the_baseline_is_the_unchanged_program(tmp_path: Path) -> None:
    status, verdict = played(tmp_path, TRAINS)
    assert (status, verdict.state) == (0, "completed"), verdict
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert lines[2].endswith("] 7 2 ranks False")
    assert any(line.endswith("] and a last line without an end") for line in lines)
    assert '"state": "completed", "steps": 3' in lines[-1]


def test_sent_bytes_of_ranks_are_in_the_log(tmp_path: Path) -> None:
    exact = {**ROW, "codec": "", "why": "unknown group", "group": "odd", "dimension": "unknown"}
    status, verdict = played(tmp_path, REPORTS.replace("ROWS", repr([ROW, exact])), INT8)
    assert (status, verdict.state) == (0, "completed"), verdict
    events = [json.loads(line) for line in (tmp_path / "log.txt").read_text().splitlines() if line.startswith("{")]
    assert [event["event"] for event in events] == [
        *("start", "configuration", "applied", "traffic", "calls", "unknown_group", "network", "end")
    ]
    coded, plain = events[3]["channels"]
    assert (coded["dimension"], coded["message_bytes"], coded["wire_bytes"]) == ("DP", 6000, 1600)
    assert (plain["dimension"], plain["message_bytes"], plain["wire_bytes"]) == ("EXACT", 6000, 6000)
    assert [(row["group"], row["why"], row["calls"]) for row in events[4]["rows"]] == [
        *(("default_pg", "", 6), ("odd", "unknown group", 6))
    ]
    assert events[5]["group"] == "odd" and "match: '^odd$'" in events[5]["remedy"]


@pytest.mark.parametrize(
    ("script", "scheme", "message"),
    [
        (TRAINS, INT8, "0 of 2 ranks have reported their traffic"),
        (REPORTS.replace("ROWS", repr([{**ROW, "codec": "", "why": "small"}])), INT8, "were sent exactly (small)"),
        ("print('nothing')", NATIVE, "the program's log has no step that matches program.log.line"),
        ("print('loss 1'); raise SystemExit(3)", NATIVE, "exit status 3"),
        ("print('loss 1')\nprint('[rank1]: ValueError: planted')\nraise SystemExit(1)", NATIVE, "ValueError: planted"),
    ],
)  # fmt: skip
def test_invalid_measurements_fail_with_a_reason(
    tmp_path: Path, script: str, scheme: dict[str, Any], message: str
) -> None:
    status, verdict = played(tmp_path, script, scheme)
    assert status != 0 and verdict.state == "failed"
    assert message in verdict.reason
    mark = Mark("ended", exit=status)
    assert (
        resolve_unread_run(tmp_path, tmp_path, mark, JobSummary("j1", State.COMPLETED)) == verdict
    )  # as printed by `hpcbench status`


CHANGES = """\
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ.get("MINE"), os.environ.get("OTHERS"), os.environ.get("SET_BY_SETUP")]))
for loss in (3, 2, 1): print("loss", loss)
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python play.py {seed}", ["7", "--bits", "4 5", "7"]),
        ("python play.py {arguments} {seed}", ["--bits", "4 5", "7", "7"]),
    ],
    ids=["appended", "placed"],
)
def test_a_scheme_may_change_arguments_variables_and_setup(tmp_path: Path, command: str, expected: list[str]) -> None:
    scheme = {
        **NATIVE,
        "name": "other",
        "arguments": "--bits '4 5' {seed}",
        "environment": {"OTHERS": "a b"},
        "setup": ["export SET_BY_SETUP='x y' # a remark", "true"],
    }
    status, state = played(tmp_path, CHANGES, scheme, command=command)
    assert (status, state.state) == (0, "completed"), state
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    printed = next(line for line in lines if line.startswith("[") and '["' in line)
    assert json.loads(printed.split("] ", 1)[1]) == [expected, "2 ranks", "a b", "x y"]
    applied = next(json.loads(line) for line in lines if line.startswith('{"event": "applied"'))
    assert applied["command"][1:] == ["play.py", *expected] and applied["environment"] == {"OTHERS": "a b"}
    assert applied["setup"] == scheme["setup"] and applied["preload"] is None
    assert applied["versions"]["torch"]


def test_a_preloaded_library_is_loaded_and_recorded(tmp_path: Path) -> None:
    source = tmp_path / "marker.c"
    source.write_text(
        '#include <stdlib.h>\n__attribute__((constructor)) static void mark(void) { setenv("OTHERS", "loaded", 1); }\n',
        encoding="utf-8",
    )
    library = tmp_path / "marker.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    status, state = played(tmp_path, CHANGES, {**NATIVE, "name": "other", "preload": str(library)})
    assert (status, state.state) == (0, "completed"), state
    text = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert '"2 ranks", "loaded", null]' in text
    applied = next(json.loads(line) for line in text.splitlines() if line.startswith('{"event": "applied"'))
    assert applied["preload_sha256"] == hashlib.sha256(library.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preload": "/no/such/library.so"}, "scheme other: preload: /no/such/library.so does not exist on "),
        ({"setup": ["true", 'false "a" $b']}, 'scheme other: setup: false "a" $b: exit status 1'),
        ({"setup": ["no-such-command"]}, "scheme other: setup: no-such-command: exit status 127"),
    ],
)
def test_a_scheme_that_cannot_be_applied_fails_before_the_program(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    status, state = played(tmp_path, "open('started', 'w')", {**NATIVE, "name": "other", **changes})
    assert status == 2 and state.state == "failed" and message in state.reason
    assert not (tmp_path / "started").exists()


def test_with_auto_a_program_may_send_everything_unencoded(tmp_path: Path) -> None:
    rows = [{**ROW, "codec": "", "why": "plan"}]
    status, verdict = played(tmp_path, REPORTS.replace("ROWS", repr(rows)), {**INT8, "algorithm": "auto"})
    assert (status, verdict.state) == (0, "completed"), verdict


def test_a_missing_command_is_named(tmp_path: Path) -> None:
    status, verdict = played(tmp_path, "", command="no-such-program {seed}")
    assert status == 2 and "no-such-program {seed}: No such file or directory" in verdict.reason


def test_a_stopped_run_ends_with_its_status(tmp_path: Path) -> None:
    process = started(written(tmp_path, "import time\nprint('loss 1')\ntime.sleep(60)"))
    while b"loss 1" not in (tmp_path / "log.txt").read_bytes():
        time.sleep(0.05)
    (tmp_path / "stop").touch()
    assert process.wait(30) == 75
    assert judged(tmp_path, 75).state == "stopped"


def test_a_signal_to_the_group_ends_launcher_and_program(tmp_path: Path) -> None:
    path = written(tmp_path, "import os, time\nprint('process', os.getpid())\ntime.sleep(60)")
    command = [sys.executable, "-u", "-m", "hpcbench.programs", str(path), "env", sys.executable]
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, start_new_session=True)
    while b"process" not in (tmp_path / "log.txt").read_bytes():
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    program = int((tmp_path / "log.txt").read_text().split("process ")[1].split()[0])
    for _ in range(200):
        if not Path(f"/proc/{program}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the program continues")


@pytest.mark.parametrize("names", PLACES)
def test_every_launcher_gives_a_rank_its_place(names: tuple[str, str, str]) -> None:
    values = dict(zip(names, ("5", "8", "1"), strict=True))
    assert place(values) == (5, 8, 1)
    del values[names[2]]
    assert place(values) == (5, 8, None)
    assert place({}) == (0, 1, None)


def test_a_rank_has_the_variables_of_torchrun(tmp_path: Path) -> None:
    path = written(tmp_path, "", INT8, start="rank", command="torchrun {node_rank} {host}:{port}")
    run = load(path)
    first, variables = prepared(run, path, "a", {"PMI_RANK": "0", "PMI_SIZE": "2"})
    assert first[:3] == [sys.executable, "-m", "torch.distributed.run"] and first[3] == "0"
    second, others = prepared(run, path, "a", {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"})
    assert second == first
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    assert [others[name] for name in names] == ["1", "2", "1", "2", "127.0.0.1"]
    assert others["MASTER_PORT"] == variables["MASTER_PORT"]
    settings = Interposition.model_validate_json(others[VARIABLE])
    assert settings.scheme.name == "naive-int8" and settings.out == str(tmp_path / "ranks")
    assert others["PYTHONPATH"].split(os.pathsep)[0].endswith("programs/start")


def test_the_baseline_has_no_kernels_even_if_the_shell_sets_them(tmp_path: Path) -> None:
    path = written(tmp_path, "", start="rank")
    _, variables = prepared(load(path), path, "b", {"PMI_RANK": "0", "PMI_SIZE": "2", VARIABLE: "{}"})
    assert VARIABLE not in variables


def test_a_launcher_that_starts_another_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "", start="rank")
    with pytest.raises(UserError, match="has started 3 processes, but 2 were requested"):
        prepared(load(path), path, "c", {"PMI_RANK": "0", "PMI_SIZE": "3"})


def test_ranks_of_several_nodes_meet_at_a_name_and_a_free_port(tmp_path: Path) -> None:
    there = tmp_path / "meeting-d.json"
    host, port = meeting_point(there, first=True, one_node=False)
    assert host == socket.getfqdn() and 0 < port < 1 << 16
    assert meeting_point(there, first=False, one_node=False) == (host, port)
    assert interpreted(["bash", "x.sh"]) == ["bash", "x.sh"]


def test_bytes_of_exact_calls_follow_from_the_calls() -> None:
    def row(call: str) -> dict[str, Any]:
        return {**ROW, "call": call, "ranks": 4, "call_bytes": 1000, "codec": ""}

    assert [sent_bytes(row(call)) for call in ("all-reduce", "reduce-scatter", "all-gather")] == [1500, 750, 750]
    assert sent_bytes(row("point to point")) == 500
    alone = {**row("all-reduce"), "ranks": 1}
    assert sent_bytes(alone) == 0
    ranks = [{"rows": [row("all-reduce"), {**row("all-reduce"), "why": "small"}]}]
    scheme = NamedScheme.model_validate(INT8)
    (channel,) = traffic(ranks, scheme, (1, 3)).channels or ()
    assert channel.message_bytes == channel.wire_bytes == 3000 and channel.algorithm == "native"
    assert unknown(ranks) == []
