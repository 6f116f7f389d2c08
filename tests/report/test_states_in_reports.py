"""Tests that each run state is reported with its reason, and that only completed runs are reported as successful."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from planted_results import Planted, write, write_marker
from report_tables import entries

from hpcbench.collect import submission
from hpcbench.contract.state import JobSummary, State
from hpcbench.present import latex, markdown, rich_text
from hpcbench.present.document import Document, Entry, Sentences
from hpcbench.report.build import build, resolve_tables
from hpcbench.report.compare import compare
from hpcbench.report.measures import measure


@dataclass
class Fate:
    """A change to a completed run."""

    state: State
    reason: str
    job: State = State.COMPLETED
    keep: int | None = None
    """Number of log lines to keep. With 0, the log is missing, and None keeps all lines."""
    tail: str = ""
    """Lines appended to the kept lines."""
    exit: int | None = None
    """Exit status in the status file, or None if the run has no status file."""
    marker: str | None = None
    """Content of the status file, if unusual."""


def end(state: str, reason: str) -> str:
    """Return the last line of a run that reports its own end."""
    return json.dumps({"event": "end", "state": state, "reason": reason}) + "\n"


NAN = "step 5/6 | loss nan | time 0.2500 s |\n"
CUT = "the log has no end event: after step 4 of 6, with a truncated last line"
KILLED = "a rank was killed by signal 9 (KILL), exit status 137, after step 4 of 6"
BEGAN = '{"state": "running", "start": "2026-11-21T06:30:00Z"}'
FATES = {
    "completed": Fate("completed", "", exit=0),
    "diverged": Fate("nan", "loss is nan at step 5", keep=7, tail=NAN, exit=1),
    "failed": Fate("failed", KILLED, keep=7, exit=137),
    "said-why": Fate("failed", "replicas differ", keep=9, tail=end("failed", "replicas differ"), exit=1),
    "missing": Fate("lost", "ended (exit status 0) before this run began", keep=0),
    "running": Fate("running", "", "running", keep=7, marker=BEGAN),
    "suspended": Fate("suspended", "", "suspended", keep=7, marker=BEGAN),
    "pending": Fate("pending", "Priority", "pending", keep=0),
    "cancelled": Fate("cancelled", "was cancelled", "cancelled", keep=7, exit=143),
    "out-of-memory": Fate("out of memory", "out of memory", "out of memory", keep=7, exit=137),
    "timed-out": Fate("timed out", "timed out after step 4 of 6", "timed out", keep=7, exit=143),
    "overtime": Fate("timed out", "reached its own time limit after step 4 of 6", keep=7, exit=124),
    "node-failure": Fate("node failure", "node failure", "node failure", keep=7, marker=BEGAN),
    "preempted": Fate("preempted", "preempted", "preempted", keep=7, marker=BEGAN),
    "stopped": Fate("stopped", "told to stop", keep=6, tail=end("stopped", "told to stop"), exit=75),
    "truncated": Fate("incomplete", CUT, "unknown", keep=7, tail="step 5/6 | lo", marker=BEGAN),
    "unknown": Fate("unknown", "is unknown", "unknown", keep=0),
    "odd-marker": Fate("unknown", "its status file cannot be read", keep=7, marker='{"state": "done"}'),
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Write a run for each change, each in its own job."""
    tmp_path = tmp_path_factory.mktemp("states")
    runs = [Planted(name, number, 0.25, 2.7) for number, name in enumerate(FATES, 1)]
    root, jobs = write(tmp_path / "001", runs, steps=6), {}
    for run in runs:
        fate, job, directory = FATES[run.scheme], f"j{run.repeat:04}-r{run.repeat}", root / "runs" / run.id
        jobs[job] = JobSummary(
            job, fate.job, 0 if fate.job == "completed" else None, "Priority" if fate.job == "pending" else ""
        )
        log, marker = directory / "log.txt", directory / "status.json"
        if fate.keep == 0:
            log.unlink()
        elif fate.keep is not None:
            log.write_text("".join(log.read_text().splitlines(keepends=True)[: fate.keep]) + fate.tail)
        marker.unlink()
        if fate.marker is not None:
            marker.write_text(fate.marker)
        elif fate.exit is not None:
            write_marker(directory, job, fate.exit)
    loaded = submission.load(root, jobs)
    cells = compare([measure(run) for run in loaded.runs], "completed", loaded.plan.criteria)
    return build([(loaded, cells)], resolve_tables("runs"))


def rows(document: Document) -> dict[str, dict[str, Entry]]:
    """Return the table of runs, by name of the change and column."""
    return {run.split("-", 1)[1]: row for run, row in entries(document, "runs").items()}


def test_every_state_is_planted() -> None:
    assert {fate.state for fate in FATES.values()} == set(State)


@pytest.mark.parametrize("name", FATES)
def test_a_state_is_shown_with_its_reason(document: Document, name: str) -> None:
    row, fate = rows(document)[name], FATES[name]
    assert row["state"].value == fate.state
    assert fate.reason in row["reason"].shown
    assert (row["state"].tone == "good") == (fate.state == "completed")
    assert row["where"].shown == (row["state"].source or "")


def test_what_is_bad_is_said_beside_the_answer(document: Document) -> None:
    answer_text = " ".join(
        line
        for block in document.chapters[0].blocks
        if isinstance(block, Sentences) and block.tone == "bad"
        for line in block.lines
    )
    for number, (name, fate) in enumerate(FATES.items(), 1):
        open_or_done = fate.state in ("completed", "running", "suspended", "pending")
        assert (f"r{number}-{name}: {fate.state}" in answer_text) == (not open_or_done)
        assert open_or_done or fate.reason in answer_text
    assert "1 of 18 runs are still running, and 2 are waiting." in answer_text


@pytest.mark.parametrize(
    "write_format", [partial(rich_text.write, width=400), markdown.write, latex.write], ids=["text", "md", "latex"]
)
def test_every_text_format_has_them(document: Document, write_format: Callable[[Document], str]) -> None:
    text = write_format(document).replace("\\", "")
    for name, fate in FATES.items():
        assert any(name in line and fate.state in line for line in text.splitlines()), name
        assert fate.reason in text


def test_where_runs_were_and_how_long(document: Document) -> None:
    table_rows = rows(document)
    row = table_rows["failed"]
    assert (row["step"].shown, row["job"].shown, row["hosts"].shown) == ("4/6", "j0003-r3", "n1")
    assert row["seconds"].value == 60.0
    assert table_rows["missing"]["seconds"].value is None
    assert table_rows["missing"]["step"].shown == "0/6"


def test_hosts_beyond_two_are_counted(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.25, 2.7)])
    path = root / "runs/r1-baseline/log.txt"
    lines = path.read_text().splitlines(keepends=True)
    world = [{"rank": rank, "host": f"n{rank // 2}"} for rank in range(8)]
    lines[1] = json.dumps({"event": "environment", "world": world}) + "\n"
    path.write_text("".join(lines))
    loaded = submission.load(root, {})
    cells = compare([measure(run) for run in loaded.runs], "baseline", loaded.plan.criteria)
    assert rows(build([(loaded, cells)], ["runs"]))["baseline"]["hosts"].shown == "n0, n1 and 2 more"
