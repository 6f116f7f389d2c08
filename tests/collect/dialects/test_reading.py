"""Tests of logs written by other frameworks: detection of the framework, state of the run, and use in reports."""

import json
import math
from pathlib import Path

import pytest
from mangling import DIRECTORY, LOGS, lines_of
from planted_results import Planted, log_lines

from hpcbench.collect.dialects.table import DIALECTS, markdown
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult, from_log
from hpcbench.contract.events import End
from hpcbench.errors import UserError
from hpcbench.report.main import FORMATS, report

ROOT = Path(__file__).parents[3]
ITERATION = (
    " iteration {:8d}/      10 | elapsed time per iteration (ms): 5.0 | lm loss: {} | number of nan iterations:   0 |"
)


def written(tmp_path: Path, *lines: str) -> RunResult:
    path = tmp_path / "run.log"
    path.write_text("".join(line + "\n" for line in lines))
    return from_log(path)


def log_of(run: RunResult) -> RunLog:
    assert run.log is not None
    return run.log


def test_our_own_lines_win(tmp_path: Path) -> None:
    our_lines = log_lines(Planted("mzhybrid", 1, 0.25, 2.75, 0.5), steps=4, warmup=1)
    run = written(tmp_path, *lines_of("megatron-2021"), *our_lines, *lines_of("neox"))
    assert (log_of(run).dialect, run.scheme, run.state) == ("hpcbench", "mzhybrid", "completed")


@pytest.mark.parametrize("name", ["neox", "megatron-deepspeed"])
def test_lines_of_an_engine_are_not_those_of_its_trainers(tmp_path: Path, name: str) -> None:
    engine = [f"steps: {step} loss: 1.0000 iter time (s): 1.000 samples/sec: 1.000" for step in range(50)]
    assert log_of(written(tmp_path, *engine, *lines_of(name))).dialect != "DeepSpeed"


def test_of_two_frameworks_the_one_with_more_lines_is_read_with_a_note(tmp_path: Path) -> None:
    log = log_of(written(tmp_path, *lines_of("maxtext"), *lines_of("picotron")))
    assert log.dialect == "MaxText"
    assert log.notes[0].why == "read as a log of MaxText (5 lines); lines of other frameworks: 3 of picotron"


def test_an_unknown_log_is_an_error_that_lists_the_frameworks_and_names_the_remedy(tmp_path: Path) -> None:
    message = (
        r"no step line in 2 lines\), nor a log of .*Megatron-LM.*MaxText.*"
        r"program\.log has a regular expression .*docs/how-to/torch\.md"
    )
    with pytest.raises(UserError, match=message):
        written(tmp_path, "loss 3.0", "epoch 1/3 loss=3.0")


def test_facts_of_a_foreign_run() -> None:
    run = from_log(DIRECTORY / "neox.log")
    assert (run.id, run.study, run.scheme, run.settings.raw, run.repeat) == ("neox", "logs", "unknown", {}, None)
    assert log_of(run).final_loss() == 10.55012
    assert log_of(run).missing_steps() == []


@pytest.mark.parametrize(
    ("lines", "state", "reason"),
    [
        ([ITERATION.format(10, "1.0E+00")], "completed", ""),
        ([ITERATION.format(9, "1.0E+00")], "incomplete", "does not show how the run ended: after step 9 of 10"),
        ([ITERATION.format(9, "1.0E+00"), "[after training is done] datetime: x "], "completed", ""),
        (["[after training is done] datetime: x ", ITERATION.format(9, "1.0E+00")], "incomplete", "after step 9 of 10"),
        ([ITERATION.format(10, "NAN")], "nan", "step 10"),
        ([ITERATION.format(7, "NAN")], "nan", "loss is nan at step 7, the last step in the log"),
        ([ITERATION.format(5, "1.0"), "[exiting program after receiving SIGTERM.] datetime: x "], "stopped", "step 5"),
    ],
)
def test_only_the_logs_own_end_makes_a_run_complete(tmp_path: Path, lines: list[str], state: str, reason: str) -> None:
    verdict = written(tmp_path, ITERATION.format(1, "2.0E+00"), *lines).verdict
    assert verdict.state == state
    assert reason in verdict.reason


def test_a_last_line_that_was_cut_completes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(ITERATION.format(9, "1.0E+00") + "\n" + ITERATION.format(10, "1.0E+00")[:-3])
    run = from_log(path)
    assert (run.state, log_of(run).cut) == ("incomplete", True)
    assert "after step 9 of 10, with a truncated last line" in run.verdict.reason


def test_the_end_is_reported_with_its_line_and_step() -> None:
    end = log_of(from_log(DIRECTORY / "megatron-2026.log")).event(End)
    assert end is not None
    assert (end.line, end.state, end.steps) == (6, "completed", 10)


def test_the_last_loss_of_a_complete_run_is_final_without_a_number_of_steps() -> None:
    assert log_of(from_log(DIRECTORY / "torchtitan.log")).final_loss() == 8.4321
    assert log_of(from_log(DIRECTORY / "nanogpt.log")).final_loss() is None


def test_flops_are_never_mixed() -> None:
    labels = {
        "megatron-2026": "model", "megatron-deepspeed": "hardware", "neox": "hardware", "torchtitan": "model",
        "maxtext": "model", "nanotron": "model",
    }  # fmt: skip
    for name, label in labels.items():
        for record in log_of(from_log(DIRECTORY / f"{name}.log")).steps.values():
            kinds = {kind for kind in ("model", "hardware", "unlabelled") if getattr(record, f"{kind}_flops_per_rank")}
            assert kinds <= {label}, name


@pytest.mark.parametrize("format", FORMATS)
def test_a_report_of_foreign_logs_compares_nothing(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [DIRECTORY / f"{name}.log" for name in LOGS]
    assert report(paths, format) == 1  # most do not report their end
    shown = capsys.readouterr().out
    assert all(name.split("-")[0] in shown for name in LOGS)
    assert "pays" not in shown
    if format == "json":
        json.loads(shown)


def test_a_loss_that_is_not_a_number_counts_wherever_it_is() -> None:
    record = log_of(from_log(DIRECTORY / "nanogpt.log")).steps[20]
    assert record.loss is not None and math.isnan(record.loss)


def test_docs_list_the_frameworks() -> None:
    assert markdown() in (ROOT / "docs" / "reference" / "logs.md").read_text()
    assert all(dialect.name in markdown() for dialect in DIALECTS)
