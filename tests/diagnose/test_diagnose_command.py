"""Tests of the command `hpcbench diagnose`: its output and files, and wrong input."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_kineto import collective, kernel, steps, two_steps, write

from hpcbench.diagnose.command import diagnose_files
from hpcbench.diagnose.kineto import read_rank
from hpcbench.diagnose.trace_file import TraceFile
from hpcbench.errors import UserError


def test_the_answer_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "rank0.json", two_steps())
    output = tmp_path / "out.json"
    assert diagnose_files([trace], output=output) == 0
    lines = capsys.readouterr().out.splitlines()
    exposed = (
        "Communication is exposed for 20 % of the step: DP reduce-scatter (bf16) 17 %, TP all-gather (bf16) 3.0 %."
    )
    assert lines[0] == exposed
    assert lines[1] == (
        "int8 on DP can make a step at most 1.17x faster (4 bits: 1.25x, free communication: 1.25x); int8 pays below"
        " 492 Gbit/s per GPU."
    )
    document = json.loads(output.read_text())
    assert (document["version"], document["answer"][0], document["ranks"]) == (1, lines[0], [0])
    assert document["rows"][0]["exposed"] == pytest.approx(170e-6)


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "txt"])
def test_every_format_has_the_exposed_kinds(suffix: str, tmp_path: Path) -> None:
    trace = write(tmp_path / "rank0.json", two_steps())
    diagnose_files([trace], output=tmp_path / f"out.{suffix}")
    text = (tmp_path / f"out.{suffix}").read_text()
    assert "reduce-scatter" in text and "all-gather" in text
    if suffix == "html":
        assert "One step of rank 0" in text and "DP: gain by bandwidth" in text and text.count("<svg") >= 2


def test_compressed_traces_and_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "plain.json", two_steps())
    inside = tmp_path / "traces"
    inside.mkdir()
    write(inside / "rank0.pt.trace.json.gz", two_steps())
    printed = []
    for path in (tmp_path / "plain.json", inside):
        diagnose_files([path])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_a_large_trace_needs_little_memory(tmp_path: Path) -> None:
    filler = [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": k, "dur": 1} for k in range(200_000)]
    trace = write(tmp_path / "large.json", [*two_steps(), *filler])
    tracemalloc.start()
    try:
        n_events = sum(1 for _ in TraceFile(trace).read_events())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_events == len(two_steps()) + 200_000
    assert peak < 12 << 20 < trace.stat().st_size


def damage_gzip(path: Path) -> Path:
    content = bytearray(gzip.compress(json.dumps({"traceEvents": two_steps() * 50}).encode()))
    path.write_bytes(content[: len(content) // 2])
    return path


WRONG: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "missing": (
        lambda at: [at / "gone.json"],
        "gone.json: no such file or directory: give traces, or record them with",
    ),
    "empty": (lambda at: [write_text(at, "")], "the file is empty"),
    "text": (lambda at: [write_text(at, "hello")], "is not JSON"),
    "another document": (
        lambda at: [write_text(at, '{"a": [1]}')],
        "contains no 'traceEvents': give a trace of torch.profiler",
    ),
    "truncated": (lambda at: [cut(at)], "the file is truncated or damaged"),
    "damaged gzip": (lambda at: [damage_gzip(at / "x.json.gz")], "the gzip data is damaged"),
    "no work": (lambda at: [write(at / "x.json", steps(0, 10))], "no kernels, operators or collective calls"),
    "no trace": (lambda at: [at], "the directory contains no trace (*.json, *.json.gz): record traces with"),
    "one rank twice": (lambda at: [write(at / f"{k}.json", two_steps()) for k in range(2)], "give one trace per rank"),
    "two jobs": (
        lambda at: [write(at / f"{k}.json", two_steps(), k, 2 + k) for k in range(2)],
        "give traces of the same job",
    ),
    "no rank": (lambda at: [write(at / f"{k}.json", two_steps(), None) for k in range(2)], "does not contain its rank"),
    "other steps": (
        lambda at: [write(at / f"{k}.json", [*steps(0, 9, first=9 * k), kernel(0, 9)], k) for k in range(2)],
        "no common step (0.json: steps 0 to 0; 1.json: steps 9 to 9)",
    ),
}


def write_text(at: Path, text: str) -> Path:
    (at / "x.json").write_text(text)
    return at / "x.json"


def cut(at: Path) -> Path:
    trace = write(at / "x.json", two_steps())
    trace.write_bytes(trace.read_bytes()[:-900])
    return trace


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line(case: str, tmp_path: Path) -> None:
    make, says = WRONG[case]
    with pytest.raises(UserError) as caught:
        diagnose_files(make(tmp_path))
    (line,) = caught.value.lines
    assert says in line and str(tmp_path) in line + str(tmp_path) * (case == "other steps")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"patterns": ["mine"]}, "--group mine: give REGEX=DIMENSION"),
        ({"patterns": ["(=DP"]}, "--group (=DP: give a regular expression"),
        ({"patterns": ["mine=XP"]}, "one of the dimensions DP, TP"),
        ({"codec_speed": 0.0}, "--codec-speed 0: must be above 0, in GB/s"),
        ({"link_gbit": 0.0}, "--link 0: must be above 0, the bandwidth of a rank's link in Gbit/s"),
        ({"link_gbit": float("nan")}, "--link nan: must be above 0, the bandwidth of a rank's link in Gbit/s"),
        ({"output": Path("x.pdf")}, "--output x.pdf: .pdf is not the suffix of a format"),
        ({"output": Path("gone/x.html")}, "--output gone/x.html: the directory gone does not exist: create it"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r".") as caught:
        diagnose_files([write(tmp_path / "x.json", two_steps())], **options)  # type: ignore[arg-type]
    assert says in caught.value.lines[0]


def test_strange_events_are_left_out(tmp_path: Path) -> None:
    """Fields of wrong type, negative times and events without a name do not stop the parser."""
    strange: list[dict[str, Any]] = [
        {"ph": "X", "cat": "kernel", "name": 7, "ts": 1, "dur": 2},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 2},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic_1()", "ts": 5, "dur": -2, "args": "none"},
        {"ph": "M"},
        {**collective(20, 5), "args": {"Collective name": 3, "In msg nelems": "many", "Group size": None}},
    ]
    trace = read_rank(write(tmp_path / "x.json", [*strange, kernel(0, 10)]))
    assert [(call.operation, call.message_bytes) for call in trace.calls] == [("unknown operation", None)] * 2


def test_the_share_of_the_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DP's reduce-scatter sends 4,000 bytes in 300 us: 0.107 Gbit/s, half of 0.2133."""
    trace = write(tmp_path / "x.json", two_steps())
    diagnose_files([trace])
    assert "of the link" not in capsys.readouterr().out
    diagnose_files([trace], link_gbit=2 * 8e-9 * 4000 / 300e-6)
    lines = capsys.readouterr().out.splitlines()
    assert " per GPU, and the link has 0.213333 Gbit/s." in " ".join(lines[:4])
    (heading,) = [line for line in lines if line.endswith("of the link")]
    assert [line.split()[-2] for line in lines if "reduce-scatter" in line and "%" in line[len(heading) - 8 :]] == [
        "50.0"
    ]


def test_a_group_that_matches_nothing_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "x.json", two_steps())
    diagnose_files([trace], patterns=["^my_shards$=DP", "default_pg=DP"])
    names = "TENSOR_MODEL_PARALLEL_GROUP, default_pg"
    assert capsys.readouterr().err == f"hpcbench: --group ^my_shards$=DP: matches no group: the groups are {names}\n"
