"""Tests of errors and notes before training: an MPI library without threads, and rules that match no traffic."""

import json
from pathlib import Path

import pytest
from mpi4py import MPI
from test_run_loop import RUN

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError

WORKER = Path(__file__).with_name("run_worker.py")
WORDS = (
    "train.overlap: messages that move during the computation need MPI_THREAD_SERIALIZED, and this MPI library grants "
    "MPI_THREAD_{}: set train.overlap to false, or use an MPI library with thread support"
)


@pytest.mark.parametrize(("level", "name"), [(MPI.THREAD_SINGLE, "SINGLE"), (MPI.THREAD_FUNNELED, "FUNNELED")])
def test_overlap_without_threads_is_a_line_with_a_remedy(monkeypatch, level, name):
    monkeypatch.setattr(MPI, "Query_thread", lambda: level)
    with pytest.raises(UserError) as caught:
        Progress(Wait.SPIN, background=True)
    assert str(caught.value) == WORDS.format(name)
    assert not Progress(Wait.SPIN).background


def run_file(directory, scheme):
    path = directory / "run.json"
    path.write_text(json.dumps(RUN.changed(scheme=scheme, oversubscribe=True).content()), encoding="utf-8")
    return path


def test_the_worker_reports_it_in_one_line(mpi_run, tmp_path, monkeypatch):
    monkeypatch.setenv("MPI4PY_RC_THREAD_LEVEL", "single")
    done = mpi_run(1, WORKER, str(run_file(tmp_path, RUN.scheme)))
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "hpcbench.train" in line]
    assert lines == [f"hpcbench.train: {WORDS.format('SINGLE')}"] and "Traceback" not in done.stderr


def test_rules_that_match_no_traffic_are_in_the_log(mpi_run, tmp_path):
    rules = [Rule(dimension="DP", codec="int8"), Rule(dimension="PP", codec="zfp:8", min_bytes=100)]
    done = mpi_run(
        1, WORKER, str(run_file(tmp_path, NamedScheme(name="own", algorithm="encoded", default="none", rules=rules)))
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [event["reason"] for event in events if event["event"] == "idle_rule"] == [
        "rule 1 (DP int8:256) applies to no message in this layout",
        "rule 2 (PP zfp:8) applies to no message in this layout",
    ]
