"""Tests of log lines that vary by version and option: reordered or missing fields, other quotes and intervals."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mangling import DIRECTORY, quantities, read_as

from hpcbench.collect.dialects.deepspeed import DEEPSPEED
from hpcbench.collect.dialects.dialect import Dialect
from hpcbench.collect.dialects.megatron import MEGATRON
from hpcbench.collect.dialects.mlperf import MLPERF
from hpcbench.collect.dialects.nemo import AUTOMODEL, NEMO
from hpcbench.collect.dialects.table import TRANSFORMERS
from hpcbench.collect.dialects.verl import VERL
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import from_log
from hpcbench.contract.events import End, Evaluation
from hpcbench.report.measures import measure


def read_lines(dialect: Dialect, *lines: str) -> RunLog:
    return read_as(dialect, "\n".join([*lines, ""]).encode())


def write_log(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "run.log"
    path.write_text("\n".join([*lines, ""]))
    return path


def read_file(tmp_path: Path, *lines: str) -> RunLog:
    log = from_log(write_log(tmp_path, *lines)).log
    assert log is not None
    return log


ITERATION = (
    " iteration {step:8d}/      9 | elapsed time per iteration (ms): 3100.5 | lm loss: 6.5 |"
    " number of skipped iterations:   {skipped} | number of nan iterations:   0 |"
)
UTILIZATION = "Step Time : 3.10s GPU utilization: {}MODEL_TFLOP/s/GPU"


def flops_of(log: RunLog) -> dict[int, float | None]:
    return {step: record.model_flops_per_rank for step, record in log.steps.items()}


def test_flops_from_rank_0_belong_to_the_next_iteration_of_the_last_rank() -> None:
    log = read_lines(
        MEGATRON,
        "[rank7]:" + ITERATION.format(step=1, skipped=0),
        "[rank0]:" + UTILIZATION.format(24.5),
        "[rank7]:" + ITERATION.format(step=2, skipped=0),
        "[rank7]:" + ITERATION.format(step=3, skipped=0),
        "[rank0]:" + UTILIZATION.format(55.5),
        "0: run/0 " + UTILIZATION.format(99.5),
        "[rank7]:" + ITERATION.format(step=4, skipped=0),
        "[rank0]:" + UTILIZATION.format(57.5),
    )
    assert flops_of(log) == {1: None, 2: 24.5e12, 3: None, 4: 55.5e12}


def test_flops_before_an_iteration_that_was_cut_are_dropped() -> None:
    rows = [UTILIZATION.format(24.5), ITERATION.format(step=1, skipped=0)[:60], ITERATION.format(step=2, skipped=0)]
    assert flops_of(read_lines(MEGATRON, *rows)) == {2: None}


def test_the_rates_of_megatron_bridge(tmp_path: Path) -> None:
    run = from_log(DIRECTORY / "megatron-bridge.log")
    measures = measure(run)
    assert measures.model_flops_per_rank == pytest.approx(55.9e12, rel=0.01)
    assert measures.samples_per_s == pytest.approx(41.0, rel=0.01)


@pytest.mark.parametrize(("skipped", "is_noted"), [(0, False), (1, False), (2, True)])
def test_runs_that_skip_most_steps_are_noted(skipped: int, is_noted: bool) -> None:
    rows = [ITERATION.format(step=step, skipped=skipped) for step in (2, 4, 6)]
    notes = [note.why for note in read_lines(MEGATRON, *rows).notes]
    assert any("of 6 steps were skipped (100 %)" in note for note in notes) == is_noted


QUOTES = st.sampled_from([("'", ""), ("'", "'"), ('"', ""), ('"', '"')])
PRINTED = {
    "loss": ("loss", 2.125),
    "grad_norm": ("gradient_norm", 37.5),
    "learning_rate": ("lr", 4.5e-05),
    "num_tokens": ("consumed_tokens", 131072.0),
    "epoch": (None, 0.25),
    "rewards/accuracies": (None, 0.75),
    "completions/mean_length": (None, 256.0),
}


@settings(max_examples=60, deadline=None)
@given(st.permutations(sorted(PRINTED)), st.sets(st.sampled_from(sorted(set(PRINTED) - {"loss"}))), QUOTES)
def test_dictionaries_with_keys_in_any_order(order: list[str], missing: set[str], quotes: tuple[str, str]) -> None:
    outer, inner = quotes
    keys = [key for key in order if key not in missing]
    pairs = ", ".join(f"{outer}{key}{outer}: {inner}{PRINTED[key][1]}{inner}" for key in keys)
    log = read_lines(TRANSFORMERS, f"{{{pairs}}}", "{'eval_loss': 1.5, 'epoch': 1}", f"{{{pairs}}}")
    truth = {attribute: value for attribute, value in (PRINTED[key] for key in keys) if attribute}
    assert quantities(log) == {step: {"step": step, **truth} for step in (1, 2)}
    assert [(event.step, event.loss) for event in log.events if isinstance(event, Evaluation)] == [(1, 1.5)]


def engine_lines(step: int, skipped: int = 0) -> list[str]:
    return [
        f"[2025-11-26 03:07:16,494] [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, skipped={skipped},"
        " lr=[0.001], mom=[0.0, 0.0]",
        f"[2025-11-26 03:07:16,494] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step},"
        " RunningAvgSamplesPerSec=9.5, CurrSamplesPerSec=9.61, MemAllocated=3.1GB, MaxMemAllocated=20.25GB",
    ]


@pytest.mark.parametrize("interval", [1, 2, 5, 10, 20])
def test_losses_between_the_lines_of_deepspeed(tmp_path: Path, interval: int) -> None:
    rows = []
    for step in range(1, 41):
        rows += engine_lines(step) if step % 10 == 0 else []
        rows += [f"{{'loss': {step}.5, 'epoch': 0.1}}"] if step % interval == 0 else []
    rows.append("{'train_runtime': 93.1, 'train_samples_per_second': 5.5, 'train_loss': 1.5}")
    log = read_file(tmp_path, *rows)
    losses = [record.loss for record in log.steps.values() if record.loss is not None]
    assert losses == [step + 0.5 for step in range(interval, 41, interval)]
    assert set(log.steps.column("samples_per_s")) == {9.61}  # not the mean at the end, which is of the full run
    assert log.running_means == set() and log.event(End) is not None
    assert not any("were skipped" in note.why or "other frameworks" in note.why for note in log.notes)


def test_the_speed_of_a_trainer_is_its_mean_over_the_run(tmp_path: Path) -> None:
    rows = [f"{{'loss': {step}.5}}" for step in range(1, 9)]
    path = write_log(tmp_path, *rows, "{'train_samples_per_second': '10.7', 'train_runtime': '93.1'}")
    run = from_log(path)
    assert run.state == "completed"
    assert measure(run).samples_per_s == pytest.approx(10.7)


NEMO_FIELDS = {
    "lr": ("lr", "3e-05", 3e-05),
    "consumed_samples": ("consumed_samples", "121.0", 121),
    "global_batch_size": ("samples", "8", 8),
    "reduced_train_loss": ("loss", "1.25", 1.25),
    "train_step_timing in s": ("seconds", "0.5", 0.5),
    "grad_norm": ("gradient_norm", "0.75", 0.75),
    "val_loss": (None, "4.125", None),
}


@settings(max_examples=40, deadline=None)
@given(st.permutations(sorted(NEMO_FIELDS)), st.sets(st.sampled_from(sorted(NEMO_FIELDS)), max_size=5), st.booleans())
def test_fields_of_nemo_in_any_order(order: list[str], missing: set[str], numbered: bool) -> None:
    names = [name for name in order if name not in missing]
    fields = [f"{name}: {NEMO_FIELDS[name][1]}" for name in names]
    fields.insert(len(fields) // 2, "global_step: 270" if numbered else "epochs: 2")
    log = read_lines(NEMO, f"Training epoch 1, iteration 120/149 | {' | '.join(fields)}")
    truth = {attribute: value for attribute, _, value in (NEMO_FIELDS[name] for name in names) if attribute}
    step = 270 if numbered else 120
    assert quantities(log) == {step: {"step": step, **truth}}


@pytest.mark.parametrize(("seen", "is_contradiction"), [(1192, False), (1184, True)])
def test_samples_of_nemo_count_with_those_of_the_step(tmp_path: Path, seen: int, is_contradiction: bool) -> None:
    row = "Training epoch 0, iteration 148/149 | consumed_samples: {} | global_batch_size: 8 | global_step: 148"
    notes = measure(from_log(write_log(tmp_path, row.format(seen)))).notes
    assert any("consumed samples" in note for note in notes) == is_contradiction


VERL_FIELDS = {
    "actor/grad_norm": ("gradient_norm", 0.069),
    "actor/lr": ("lr", 1e-06),
    "perf/mfu/actor": ("mfu", 0.41),
    "perf/throughput": ("tokens_per_s_per_rank", 1416.9),
    "actor/pg_loss": (None, -0.5),
    "val-core/openai/gsm8k/acc/mean@1": (None, 0.5),
}


@settings(max_examples=40, deadline=None)
@given(st.permutations(["timing_s/step", *sorted(VERL_FIELDS)]), st.sampled_from(["{}", "np.float64({})", "{:.6f}"]))
def test_fields_of_verl_in_any_order(order: list[str], form: str) -> None:
    fields = VERL_FIELDS | {"timing_s/step": ("seconds", 96.5)}
    row = " - ".join(["step:7", *(f"{name}:{form.format(fields[name][1])}" for name in order)])
    truth = {attribute: pytest.approx(value, abs=1e-9) for attribute, value in fields.values() if attribute}
    assert quantities(read_lines(VERL, f"(TaskRunner pid=1) {row}")) == {7: {"step": 7, **truth}}


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (", ", ":")])
@pytest.mark.parametrize("place", ["step", "step_num", "samples_count"])
@pytest.mark.parametrize("first", [True, False])
def test_statistics_of_mlperf(separators: tuple[str, str], place: str, first: bool) -> None:
    metadata = {place: 20, "file": "a.py"} if first else {"lineno": 7, place: 20}
    event = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "tracked_stats"}
    row = {**event, "value": {"train_step_time": 8.0, "throughput": 142.5, "loss": 4.5}, "metadata": metadata}
    other = {**event, "key": "eval_accuracy", "value": 4.75, "metadata": metadata}
    stop = {**event, "key": "run_stop", "value": None, "metadata": {"status": "aborted", **metadata}}
    rows = [":::MLLOG " + json.dumps(fields, separators=separators) for fields in (row, other, stop)]
    log = read_lines(MLPERF, *(f"0: {fields}" for fields in rows))
    assert quantities(log) == {20: {"step": 20, "samples_per_s": 142.5, "seconds": 8.0}}
    end = log.event(End)
    assert end is not None and end.state == "stopped"
    assert bool(log.notes) == (place == "samples_count")


@pytest.mark.parametrize(
    ("fields", "truth"),
    [
        ("grad_norm 1.5 | lr 1.00e-05 | mem 2.00 GiB | tps 100.50", {"gradient_norm": 1.5, "tokens_per_s": 100.5}),
        ("tps 100.50(25.25/gpu)", {"tokens_per_s": 100.5, "tokens_per_s_per_rank": 25.25}),
        ("mem 2.00 GiB", {"memory_bytes": 2 << 30}),
    ],
)
def test_automodel_with_fewer_fields(fields: str, truth: dict[str, float]) -> None:
    log = read_lines(AUTOMODEL, f"2026-08-10 | INFO | step 3 | epoch 0 | loss 0.75 | {fields} | num_label_tokens 215")
    assert truth.items() <= quantities(log)[3].items()
    assert quantities(log)[3]["loss"] == 0.75


def test_overflows_of_an_engine_count_in_a_log_of_the_trainer() -> None:
    overflow = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4.0, reducing to 2.0"
    log = read_lines(TRANSFORMERS, "{'loss': 1.5}", overflow, "{'loss': 2.5}")
    assert [record.skipped for record in log.steps.values()] == [None, 1]


def test_lines_of_rank_0_with_and_without_its_prefix_are_counted_together() -> None:
    rows = ["[rank0]:{'loss': 1.5}", "{'loss': 2.5}", "[rank1]:{'loss': 9.5}", "{'loss': 3.5}"]
    log = read_lines(TRANSFORMERS, *rows)
    assert [record.loss for record in log.steps.values()] == [1.5, 2.5, 3.5]


def test_dictionaries_are_read_as_lines_of_deepspeed_but_do_not_identify_a_log() -> None:
    assert not DEEPSPEED.probes("{'loss': 1.5, 'epoch': 0.1}")
    assert TRANSFORMERS.probes("{'loss': 1.5, 'epoch': 0.1}")
