"""Tests that speed is work divided by time in all kinds of logs, with stalled steps, and with the first-step rule."""

import csv
import io
import json
import re
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import pytest
from planted_results import Planted, write
from report_tables import cell, entries

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult, from_log
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState
from hpcbench.contract.step_line import Step
from hpcbench.report.answer import answer
from hpcbench.report.build import build, resolve_tables
from hpcbench.report.main import report
from hpcbench.report.measures import Measures, measure
from hpcbench.report.notes import list_notes
from hpcbench.report.sections import read

STALLS = [1.0, 8.0, 1.0, 8.0, 1.0] * 6
"""Step times in seconds. Two in five steps take eight times as long."""
MEAN = 3.8


def stall(log: Path, factor: float = 8.0) -> None:
    """Make the second and fourth of five steps take `factor` times as long."""
    lines = []
    for line in log.read_text().splitlines(keepends=True):
        step = re.match(r"step +(\d+)/", line)
        if step and int(step[1]) % 5 in (2, 4):
            line = re.sub(r"time ([\d.]+) s", lambda result: f"time {float(result[1]) * factor:.6f} s", line)
            line = re.sub(
                r"(samples/s|model|hardware) ([\d.]+)",
                lambda result: f"{result[1]} {float(result[2]) / factor:.4g}",
                line,
            )
        lines.append(line)
    log.write_text("".join(lines))


def stalled(root: Path) -> Path:
    """Return a submission whose codec takes 0.45 times the baseline's time in most steps, and 3.6 times otherwise."""
    runs = [
        Planted(scheme, k, seconds * (1 + ((k + i) % 3) / 100), 2.7)
        for k in range(1, 6)
        for i, (scheme, seconds) in enumerate((("baseline", 0.2), ("naive-int8", 0.09)))
    ]
    write(root, runs, steps=60, warmup=5)
    for log in root.glob("runs/*naive-int8/log.txt"):
        stall(log)
    return root


def foreign(steps: int = len(STALLS), settings: dict[str, Any] | None = None, **columns: Any) -> Measures:
    """Return a run with another framework's log and these columns. The first step took a hundred times as long."""
    log = RunLog(Path("train.log"), dialect="other")
    warm = {"seconds": 100.0, "samples": 16}
    log.steps.add(Step(1, line=1, **{name: warm.get(name, 0.01) for name in columns}))
    for k in range(steps):
        log.steps.add(Step(2 + k, line=2 + k, **{name: values[k] for name, values in columns.items()}))
    return measure(
        RunResult(
            "x",
            "s",
            "here",
            "unknown",
            None,
            "p",
            {},
            ResolvedState("completed"),
            log,
            LoggedSettings.read(settings or {}),
        )
    )


# ---------------------------------------------------------------- steps that stall


def test_a_scheme_that_stalls_is_slower_although_most_of_its_steps_are_faster(tmp_path: Path) -> None:
    compared_cell = cell(stalled(tmp_path))
    row = compared_cell.row("naive-int8")
    assert row is not None and row.speed is not None and row.samples_per_s is not None
    assert row.speed.estimate == pytest.approx(0.2 / (0.09 * (3 + 2 * 8) / 5), rel=0.01)
    assert row.speed.slower
    assert answer(compared_cell, "local")[0].endswith(
        "compression does not pay: all schemes are slower than the baseline."
    )
    assert row.loss_in_time is not None and row.loss_in_time.estimate > 0, "it has taken fewer steps at equal time"


def test_the_report_shows_median_and_p95_and_warns_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = stalled(tmp_path)
    row = entries(build(read([root]).sections, resolve_tables("speed")), "speed")["naive-int8"]
    mean, middle, late = (row[name].value for name in ("step_seconds", "step_seconds_median", "step_seconds_p95"))
    assert isinstance(mean, float) and isinstance(middle, float) and isinstance(late, float)
    assert mean / middle == pytest.approx(3.8, rel=0.1) and late / middle == pytest.approx(8, rel=0.01)
    assert list_notes(cell(root).runs) == [
        "mean and median step time differ by more than 5 % in 5 of 10 runs, most in r1-naive-int8 (mean 3.8 times the"
        " median): some steps stall, or the steps alternate between two typical times; speeds use the mean"
    ]
    report([root], "json")
    runs = json.loads(capsys.readouterr().out)["submissions"][0]["cells"][0]["runs"]
    assert all(run["step_seconds_median"] <= run["step_seconds_p95"] <= run["step_seconds_p99"] for run in runs)
    report([root], "csv")
    _, written = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [float(written[f"step_seconds{end}"]) for end in ("", "_median", "_p95")] == [
        pytest.approx(value) for value in (mean, middle, late)
    ]


def test_even_steps_bring_no_warning(tmp_path: Path) -> None:
    runs = [Planted(scheme, k, 0.2, 2.7, noise=0.03) for k in (1, 2) for scheme in ("baseline", "naive-int8")]
    assert list_notes(cell(write(tmp_path, runs, steps=60)).runs) == []


# ---------------------------------------------------------------- every quantity that logs print


@pytest.mark.parametrize("column", ["samples_per_s", "tokens_per_s", "tokens_per_s_per_rank"])
@pytest.mark.parametrize("timed", [True, False], ids=["with step times", "without"])
def test_printed_rates_are_work_over_time(column: str, timed: bool) -> None:
    rates = [96 / seconds for seconds in STALLS]
    run = foreign(**{column: rates}, **({"seconds": STALLS} if timed else {}))
    assert getattr(run, column) == pytest.approx(96 / MEAN)


@pytest.mark.parametrize("column", ["model_flops_per_rank", "hardware_flops_per_rank", "unlabelled_flops_per_rank"])
def test_printed_flops_and_utilization_are_work_over_time(column: str) -> None:
    rates = [4e12 / seconds for seconds in STALLS]
    for timed in ({"seconds": STALLS}, {}):
        run = foreign(**{column: rates, "mfu": [rate / 1e13 for rate in rates]}, **timed)
        assert getattr(run, column) == pytest.approx(4e12 / MEAN)
        assert run.mfu == pytest.approx(0.4 / MEAN)


def test_steps_of_unequal_work_count_by_their_time() -> None:
    """Twice the samples in twice the time is the same rate. A harmonic mean would weight both steps equally."""
    run = foreign(4, seconds=[1.0, 3.0, 1.0, 3.0], samples_per_s=[10.0, 20.0, 10.0, 20.0])
    assert run.samples_per_s == pytest.approx((10 + 60) / 4)


@pytest.mark.parametrize("settings", [{}, {"train": {"global_batch": 16, "warmup_steps": 1}}], ids=["log", "study"])
def test_a_known_batch_is_divided_by_the_mean_time(settings: dict[str, Any]) -> None:
    run = foreign(seconds=STALLS, samples=[16] * len(STALLS), settings=settings)
    assert run.samples_per_s == pytest.approx(16 / MEAN)
    assert (run.step_seconds, run.step_seconds_median) == (pytest.approx(MEAN), 1.0)
    assert run.step_seconds_p95 == pytest.approx(quantiles(STALLS, n=20, method="inclusive")[-1])
    assert run.step_seconds_p99 == pytest.approx(quantiles(STALLS, n=100, method="inclusive")[-1])


@pytest.mark.parametrize("columns", ["seconds", "tokens_per_s_per_rank", "both"])
def test_a_line_counts_by_the_steps_that_it_covers(columns: str) -> None:
    """A framework prints means over ten steps, and over three steps at the end. Later lines are lost."""
    seconds = {10: 50.0, 20: 1.0, 30: 3.0, 33: 9.0, 43: 1.0, 5043: 3.0}
    log = RunLog(Path("train.log"), dialect="other")
    for step, time in seconds.items():
        given = {"seconds": time, "tokens_per_s_per_rank": 96 / time}
        log.steps.add(Step(step, line=step, **(given if columns == "both" else {columns: given[columns]})))
    run = measure(RunResult("x", "s", "here", "unknown", None, "p", {}, ResolvedState("completed"), log))
    mean = (10 * 1 + 10 * 3 + 3 * 9 + 10 * 1 + 10 * 3) / 43
    assert run.step_seconds == (None if columns == "tokens_per_s_per_rank" else pytest.approx(mean))
    assert run.tokens_per_s_per_rank == (None if columns == "seconds" else pytest.approx(96 / mean))


def test_logs_without_step_times_warn_by_their_rates() -> None:
    for columns in ({"tokens_per_s_per_rank": [96 / seconds for seconds in STALLS]}, {"seconds": STALLS}):
        *_, note = list_notes([foreign(**columns)])
        assert "in 1 of 1 runs, most in x (mean 3.8 times the median)" in note


def test_odd_values_leave_no_traceback() -> None:
    run = foreign(4, seconds=[0.0, float("nan"), 1e300, -1.0], samples_per_s=[0.0, 5.0, float("inf"), 1e308])
    assert (run.step_seconds, run.samples_per_s) == (None, 0.0)
    assert list_notes([run])


# ---------------------------------------------------------------- dialects

SECONDS = [60.0, *[0.5, 4.0, 0.5, 4.0, 0.5] * 2]
"""The first step compiles."""
BATCH, SEQ_LEN, RANKS = 64, 1024, 8
_MEGATRON = (
    " iteration {step:8d}/      11 | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.500E-04 |"
    " global batch size:    64 | lm loss: 9.876543E+00 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |"
)
_NEOX = (
    "samples/sec: {rate:.6f} | iteration {step:8d}/      11 | elapsed time per iteration (ms): {ms:.1f} |"
    " learning rate: 1.500E-04 | lm_loss: 9.876543E+00 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |"
)
FORMS = {
    "Megatron-LM": (1, _MEGATRON),
    "GPT-NeoX": (1, _NEOX),
    "MaxText": (
        0,
        "completed step: {step}, seconds: {seconds:.3f}, TFLOP/s/device: {tflops:.6f}, Tokens/s/device: {tokens:.3f},"
        " total_weights: 65536, loss: 9.876",
    ),
    "nanoGPT": (0, "iter {step}: loss 9.8765, time {ms:.2f}ms, mfu 38.12%"),
    "torchtitan": (
        1,
        "[rank0]:[titan] 2026-01-01 00:00:10,000 - root - INFO - step: {step}  loss: 9.8765  memory: 44.29GiB(46.62%)"
        "  tps: {tokens:.3f}  tflops: {tflops:.6f}  mfu: N/A",
    ),
    "picotron": (
        1,
        "[rank 0] Step: {step:<5d} | Loss: 9.8765 | Global batch size: 65.54K | Tokens/s: {all_tokens:.2f} |"
        " Tokens/s/GPU: {tokens:.2f} | Tokens: 65.54K | MFU: 38.12% | Memory usage: 44.29GB",
    ),
    "DeepSpeed": (
        1,
        "steps: {step} loss: 9.8765 iter time (s): {seconds:.3f} samples/sec: {rate:.3f}",
    ),
}


def written(path: Path, dialect: str) -> Measures:
    """Return one framework's log of a run that is the same for all frameworks."""
    first, form = FORMS[dialect]
    lines = [
        form.format(
            step=first + k,
            seconds=seconds,
            ms=1e3 * seconds,
            rate=BATCH / seconds,
            all_tokens=BATCH * SEQ_LEN / seconds,
            tokens=BATCH * SEQ_LEN / RANKS / seconds,
            tflops=40 / seconds,
        )
        for k, seconds in enumerate(SECONDS)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return measure(from_log(path))


@pytest.mark.parametrize("dialect", FORMS)
def test_the_same_run_has_the_same_speed_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    run, mean = written(tmp_path / "train.log", dialect), fmean(SECONDS[1:])
    assert run.run.log is not None and run.run.log.dialect == dialect and len(run.run.log.steps) == len(SECONDS)
    speeds = {
        "step_seconds": mean,
        "samples_per_s": BATCH / mean,
        "tokens_per_s": BATCH * SEQ_LEN / mean,
        "tokens_per_s_per_rank": BATCH * SEQ_LEN / RANKS / mean,
        "model_flops_per_rank": 40e12 / mean,
    }
    printed = {name: value for name in speeds if (value := getattr(run, name)) is not None}
    assert printed and printed == {name: pytest.approx(speeds[name], rel=1e-3) for name in printed}
    assert run.steps == len(SECONDS) - 1
    first, uneven = list_notes([run])
    assert first.startswith("if a log states no warm-up, its speed excludes the first step line")
    assert uneven.startswith("mean and median step time differ")


def test_the_only_step_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(FORMS["MaxText"][1].format(step=0, seconds=2.0, tflops=20, tokens=4096) + "\n")
    run = measure(from_log(path))
    assert (run.steps, run.step_seconds, list_notes([run])) == (1, 2.0, [])


def test_a_stated_warm_up_is_taken_as_it_is() -> None:
    run = foreign(2, seconds=[1.0, 3.0], settings={"program": {"warmup_steps": 0}})
    assert (run.steps, run.step_seconds) == (3, pytest.approx(104 / 3))
    run = foreign(2, seconds=[1.0, 3.0], settings={"program": {"warmup_steps": None}})
    assert (run.steps, run.step_seconds) == (2, 2.0), "a study of a program that states none"
    run = foreign(2, seconds=[1.0, 3.0], settings={"program": {"warmup_steps": 2}})
    assert (run.steps, run.step_seconds) == (1, 3.0)


def test_a_running_mean_is_not_averaged_again(tmp_path: Path) -> None:
    """DeepSpeed before 2023 prints its mean since the second step, so the last value is the mean of all steps."""
    path, lines = tmp_path / "train.log", []
    for k in range(1, 11):
        mean = 32 / fmean(STALLS[: 2 * k])
        lines.append(f"[INFO] [logging.py:69:log_dist] step={2 * k}, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]")
        memory = "MemAllocated=1.5GB, MaxMemAllocated=2.0GB"
        lines.append(f"[INFO] [timer.py:193:stop] 0/{2 * k}, SamplesPerSec={mean:.6f}, {memory}")
    path.write_text("\n".join(lines) + "\n")
    assert measure(from_log(path)).samples_per_s == pytest.approx(32 / fmean(STALLS[:20]), rel=1e-5)
