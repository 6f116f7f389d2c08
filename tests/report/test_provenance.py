"""Tests of the provenance of results in a report, and of differences between compared runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, write

from hpcbench.collect.find import jobs_of
from hpcbench.collect.submission import Submission, load
from hpcbench.report.main import report
from hpcbench.report.provenance import Fact, Provenance, describe_differences, gather_provenance

GPU = {"name": "NVIDIA H200", "uuid": "GPU-1", "driver": "570.1", "clock_mhz": 1500.0, "max_clock_mhz": 1980.0}
HOST = {"host": "n1", "kernel": "6.1", "cpu": "AMD EPYC", "cpu_mhz": 2600.5, "gpus": [GPU, {**GPU, "uuid": "GPU-2"}]}
RANK = {"rank": 0, "local_rank": 0, "host": "n1", "pid": 7, "core_ranges": "0-7", "numa": [0], "device": "cuda:0 H200"}
SURROUNDINGS = {
    "mpi": "MPICH 5.0.2",
    "torch": "2.9",
    "revision": "c0ffee",
    "modules": ["gcc/13", "cuda/12"],
    "packages": {"numpy": "2.1", "torch": "2.9"},
    "hosts": [HOST],
    "world": [RANK, {**RANK, "rank": 1, "local_rank": 1, "pid": 8, "core_ranges": "8-15", "device": "cuda:1 H200"}],
}


def planted(tmp_path: Path, *surroundings: dict[str, Any]) -> Submission:
    """Write a submission with a run for each environment."""
    schemes = ["baseline", "mzhybrid", "naive-zfp8"]
    root = write(tmp_path / "001", [Planted(schemes[i], 1, 0.2, 2.7) for i in range(len(surroundings))])
    for scheme, row in zip(schemes, surroundings, strict=False):
        path = root / f"runs/r1-{scheme}/log.txt"
        lines = path.read_text().splitlines(keepends=True)
        lines[1] = json.dumps({"event": "environment", **SURROUNDINGS, **row}) + "\n"
        path.write_text("".join(lines))
    return load(root, jobs_of(root))


def facts(result: Provenance) -> dict[str, list[Fact]]:
    named: dict[str, list[Fact]] = {}
    for group in result.groups:
        for fact in group.facts:
            named.setdefault(fact.name, []).append(fact)
    return named


def test_each_fact_stands_once_with_where_it_was_read(tmp_path: Path) -> None:
    submission = planted(tmp_path, {}, {})
    origin = gather_provenance(submission)
    assert origin.notes == ()
    named = facts(origin)
    log = f"{tmp_path}/001/runs/r1-baseline/log.txt:2"
    for name, value in {
        "mpi": "MPICH 5.0.2",
        "modules": "gcc/13, cuda/12",
        "numpy": "2.1",
        "cpu": "AMD EPYC",
        "cpu_mhz": "2600.5 to 2600.5",
        "gpus": "2",
        "gpu.driver": "570.1",
        "gpu.clock_mhz": "1500 to 1500",
        "gpu.max_clock_mhz": "1980.0",
        "device": "cuda H200",
        "local rank 0": "cores 0-7; NUMA 0; cuda:0 H200",
        "local rank 1": "cores 8-15; NUMA 0; cuda:1 H200",
    }.items():
        assert named[name] == [Fact(name, value, log)]
    assert named["study"] == [Fact("study", "demo", f"{tmp_path}/001/study.yaml")]
    assert not {"pid", "uuid", "gpu.uuid", "rank", "world", "packages"} & set(named)
    assert all(group.facts for group in origin.groups)
    for fact in (fact for group in origin.groups for fact in group.facts):
        assert fact.source and fact.value.isprintable()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mpi": "Open MPI 5"}, "The runs differ in mpi: MPICH 5.0.2 (THEM), Open MPI 5 (IT)."),
        ({"packages": {"numpy": "1.26"}}, "The runs differ in numpy: 2.1 (THEM), 1.26 (IT)."),
        ({"modules": ["gcc/13"]}, "The runs differ in modules: gcc/13, cuda/12 (THEM), gcc/13 (IT)."),
        (
            {"hosts": [{**HOST, "host": "n2", "gpus": [{**GPU, "driver": "535"}, GPU]}]},
            "The nodes differ in gpu.driver: 570.1 (n1), 535 and 570.1 (n2).",
        ),
        (
            {"world": [{**RANK, "core_ranges": "0-3"}]},
            "The runs differ in local rank 0: cores 0-7; NUMA 0; cuda:0 H200 (THEM), "
            "cores 0-3; NUMA 0; cuda:0 H200 (IT).",
        ),
        ({"revision": "c0ffee-dirty"}, "hpcbench had uncommitted changes to revision c0ffee when it ran IT."),
    ],
    ids=["mpi", "package", "modules", "driver", "binding", "revision"],
)
def test_what_runs_differ_in_is_said(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    origin = gather_provenance(planted(tmp_path, {}, change, {}))
    sentence = sentence.replace("THEM", "r1-baseline, r1-naive-zfp8").replace("IT", "r1-mzhybrid")
    assert sentence in origin.notes
    others = [note for note in origin.notes if note != sentence]
    assert all("revision" in note for note in others), others


def test_of_a_fact_that_only_some_share_they_are_named(tmp_path: Path) -> None:
    named = facts(gather_provenance(planted(tmp_path, {}, {"mpi": "Open MPI 5"}, {})))
    assert [(fact.value, fact.of) for fact in named["mpi"]] == [
        ("MPICH 5.0.2", ("r1-baseline", "r1-naive-zfp8")),
        ("Open MPI 5", ("r1-mzhybrid",)),
    ]
    assert named["mpi"][1].source == f"{tmp_path}/001/runs/r1-mzhybrid/log.txt:2"


def test_clocks_of_the_moment_are_no_difference(tmp_path: Path) -> None:
    faster = {"hosts": [{**HOST, "cpu_mhz": 3100, "gpus": [{**GPU, "clock_mhz": 345.0}]}]}
    origin = gather_provenance(planted(tmp_path, {}, faster))
    assert [note for note in origin.notes if "mhz" in note] == []
    named = facts(origin)
    assert [fact.value for fact in named["cpu_mhz"]] == ["2600.5 to 3100"]
    assert [fact.value for fact in named["gpu.clock_mhz"]] == ["345 to 1500"]


def test_many_differences_are_counted(tmp_path: Path) -> None:
    packages = {f"p{i}": "1" for i in range(30)}
    submission = planted(tmp_path, {"packages": packages}, {"packages": dict.fromkeys(packages, "2")})
    sentences = describe_differences(submission.runs)
    assert len(sentences) == 5 and sentences[-1] == "The runs differ in 26 more facts."


def test_a_report_says_what_the_compared_runs_differ_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submission = planted(tmp_path, {}, {"mpi": "Open MPI 5"})
    assert submission.root is not None
    report([submission.root], "md")
    assert "The runs differ in mpi: MPICH 5.0.2 (r1-baseline), Open MPI 5 (r1-mzhybrid)." in capsys.readouterr().out


def test_changed_code_is_said_with_its_patch(tmp_path: Path) -> None:
    submission = planted(tmp_path, {})
    assert submission.root is not None
    kept_files = submission.root / "provenance"
    kept_files.mkdir()
    git = {"hpcbench": {"revision": "0123456789abcdef", "dirty": True}, "study": {"revision": "fed", "dirty": False}}
    kept_files.joinpath("submit.json").write_text(
        json.dumps({"user": "me", "command": ["hpcbench", "submit"], "git": git})
    )
    origin = gather_provenance(submission)
    [note] = origin.notes
    assert "hpcbench had uncommitted changes to revision 0123456789ab" in note and f"{kept_files}/hpcbench.diff" in note
    named = facts(origin)
    assert named["revision of hpcbench"][0].value == "0123456789abcdef, with changes"
    assert named["revision of study"][0].value == "fed" and named["command"][0].value == "hpcbench submit"


@pytest.mark.parametrize(
    "hostile",
    [
        {"world": "x", "hosts": 7, "packages": [1], "mpi": None},
        {"world": [7, {}, {"host": 1, "numa": "x", "visible": 3, "device": ["y"], "local_rank": "\x1b[2J\n"}]},
        {"hosts": [{"host": "a\nb", "gpus": {"x": 1}, "cpu": "\x1b]0;\x07" * 999, "cpu_mhz": "fast"}]},
        {"mpi": "[red]" * 999 + "\ud800", "\x1b": {"a": {"b": {"c": [[[]]]}}}, "packages": {"\n": "\t"}},
        {"hosts": [{"cpu_mhz": float("nan"), "gpus": [{"clock_mhz": float("inf")}, 3]}]},
    ],
)
def test_hostile_surroundings_are_shown_on_one_line_each(tmp_path: Path, hostile: dict[str, Any]) -> None:
    submission = planted(tmp_path, {}, hostile)
    assert submission.root is not None
    for name in ("site.json", "provenance", "jobs/j0001-r1/status.json"):
        path = submission.root / name
        path.unlink(missing_ok=True)
        path.write_text('{"hosts": [1, {"a": "\\u001b[2J"}], "id": ["\\n"], "git": {"x": 1}, "checked": 7}')
    origin = gather_provenance(submission)
    for group in origin.groups:
        for fact in group.facts:
            assert (fact.name + fact.value).isprintable() and len(fact.name + fact.value) < 1000
    assert all(note.isprintable() and len(note) < 3000 for note in origin.notes)


def test_logs_alone_tell_what_they_can(tmp_path: Path) -> None:
    submission = planted(tmp_path, {})
    alone = Submission(None, submission.plan, submission.runs)
    titles = [group.title for group in gather_provenance(alone).groups]
    assert "Jobs" not in titles and "Nodes" in titles and titles[0] == "Submission"
