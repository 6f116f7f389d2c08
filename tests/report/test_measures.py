"""Tests of the measures of one run against values computed by hand: rates, chip utilization, and parts of the step."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, log_lines, write_log

from hpcbench.batch.sites.load_site import load_site, site_names
from hpcbench.collect.run_log import RunLog, read
from hpcbench.collect.submission import RunResult, from_log
from hpcbench.contract.events import Environment
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState
from hpcbench.contract.step_line import Step
from hpcbench.predict import chips, devices
from hpcbench.report.measures import Measures, measure
from hpcbench.report.resources import PeakMemory

GPU = "NVIDIA A100-SXM4-40GB"


def foreign(**columns: list[float]) -> RunResult:
    """Return a run whose log is from another framework and has these columns."""
    log = RunLog(Path("train.log"), dialect="other")
    for k in range(len(next(iter(columns.values())))):
        values: dict[str, Any] = {name: column[k] for name, column in columns.items()}
        log.steps.add(Step(line=10 + k, step=k + 1, **values))
    return RunResult("x", "s", "here", "unknown", None, "p", {}, ResolvedState("completed"), log)


def on_gpus(run: RunResult, names: list[str], *, uuids: list[str] | None = None, **settings: Any) -> RunResult:
    """Return the same run with these GPUs as its devices."""
    assert run.log is not None
    world: list[dict[str, Any]] = [{"rank": k, "device": f"cuda:0 {name}"} for k, name in enumerate(names)]
    for rank, uuid in zip(world, uuids or [], strict=False):
        rank["gpu"] = {"uuid": uuid}
    run.log.events.append(Environment.read({"world": world}, line=2))
    run.settings = LoggedSettings.read({**run.settings.raw, **settings})
    return run


def planted(tmp_path: Path, run: Planted) -> Measures:
    return measure(from_log(write_log(tmp_path / "log.txt", run)))


# ---------------------------------------------------------------- use of the chip


def test_mfu_by_hand() -> None:
    """62.4 TFLOP/s are a fifth of a chip's 312 TFLOP/s, and 78 executed TFLOP/s are a quarter."""
    run = foreign(seconds=[0.5] * 4, model_flops_per_rank=[62.4e12] * 4, hardware_flops_per_rank=[78e12] * 4)
    measures = measure(on_gpus(run, [GPU, GPU], train={"precision": "bf16"}))
    assert (measures.basis.chip, measures.basis.peak) == (GPU, 312e12)
    assert measures.mfu == pytest.approx(0.2, rel=1e-12)
    assert measures.hfu == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize(
    ("names", "precision", "peak"),
    [
        (["NVIDIA H100 80GB HBM3"], "fp32", 66.9e12),  # not the rate of TF32
        (["Tesla V100-SXM2-16GB"], "fp16", 125e12),
        (["Tesla V100-SXM2-16GB"], "bf16", None),  # it has none
        (["NVIDIA A100-SXM-64GB"], "bf16", None),  # made for one machine, with more units than others
        (["NVIDIA A100-SXM4-40GB MIG 3g.20gb"], "bf16", None),  # three sevenths of one
        ([GPU, "NVIDIA H100 80GB HBM3"], "bf16", (312e12 + 989.4e12) / 2),
        ([GPU, "an unknown chip"], "bf16", None),
    ],
)
def test_the_peak_is_that_of_the_chip_in_the_precision_of_the_run(
    names: list[str], precision: str, peak: float | None
) -> None:
    run = on_gpus(foreign(model_flops_per_rank=[1e12]), names, train={"precision": precision})
    measures = measure(run)
    assert measures.basis.peak == (pytest.approx(peak, rel=1e-12) if peak else None)
    assert (measures.mfu is None) == (peak is None)


def test_ranks_that_share_a_gpu_share_its_peak() -> None:
    run = on_gpus(foreign(model_flops_per_rank=[39e12]), [GPU, GPU], uuids=["a", "a"], train={"precision": "bf16"})
    assert measure(run).basis.peak == 156e12
    assert measure(run).mfu == pytest.approx(0.25, rel=1e-12)


def test_a_site_knows_its_chips_better() -> None:
    run = foreign(model_flops_per_rank=[100e12])
    run = on_gpus(run, ["NVIDIA A100-SXM-64GB"], train={"precision": "bf16"}, peak_tflops={"bf16": 400})
    assert measure(run).mfu == pytest.approx(0.25, rel=1e-12)


def test_a_cpu_has_no_peak(tmp_path: Path) -> None:
    measures = planted(tmp_path, Planted("baseline", 1, 0.3, 2.7))
    assert (measures.basis.chip, measures.basis.peak, measures.mfu, measures.hfu) == (None, None, None, None)


@pytest.mark.parametrize(
    ("name", "units", "per_clock", "ghz"),
    [
        ("Tesla V100-SXM2-32GB", 80, 1024, 1.53),
        ("NVIDIA A100 80GB PCIe", 108, 2048, 1.41),
        ("NVIDIA H100 80GB HBM3", 132, 4096, 1.83),
        ("NVIDIA H100 PCIe", 114, 4096, 1.62),
        ("AMD Instinct MI250X", 110, 1024, 1.7),
        ("AMD Instinct MI300A", 228, 2048, 2.1),
        ("AMD Instinct MI300X", 304, 2048, 2.1),
    ],
)
def test_peaks_are_what_their_units_do_a_clock(name: str, units: int, per_clock: int, ghz: float) -> None:
    """Peak in half precision: units x operations per clock x clock, from the manufacturers' descriptions."""
    chip = chips.find_chip(name)
    assert chip is not None and chip.source
    assert chip.peak("fp16") == pytest.approx(units * per_clock * ghz * 1e9, rel=5e-3)


def test_no_name_is_of_two_chips() -> None:
    for chip in chips.list_chips():
        assert chip.peak("fp16") and chip.peak("fp64")
        assert chip.peak("fp8") is None
        assert chips.find_chip(chip.name) == chip
    sites = {gpu for name in site_names() if (gpu := load_site(name)[0].node.gpu)}
    others = {"NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA GB200"}
    assert len(sites) > 5
    for name in sites | others:
        (chip_name,) = [chip.name for chip in chips.list_chips() if re.fullmatch(chip.pattern, name)]
        device = devices.find_device(name)
        assert device and (device.name == chip_name or "NVL" in name), "predictions use the data of H200 SXM"


# ---------------------------------------------------------------- kinds of FLOP/s


def test_flops_of_one_kind_are_never_shown_as_another() -> None:
    kinds = ("model_flops_per_rank", "hardware_flops_per_rank", "unlabelled_flops_per_rank")
    for kind in kinds:
        measures = measure(foreign(seconds=[9.0, 1.0, 1.0], **{kind: [1e12, 5e12, 3e12]}))
        assert {name: getattr(measures, name) for name in kinds} == {**dict.fromkeys(kinds), kind: 4e12}


def test_what_a_foreign_log_claims_is_given_as_claimed() -> None:
    run = foreign(mfu=[0.41, 0.43, 0.42], tokens_per_s_per_rank=[100.0, 110.0, 105.0], memory_bytes=[7, 9, 8])
    measures = measure(run)
    assert measures.mfu == pytest.approx(2 / (1 / 0.43 + 1 / 0.42), rel=1e-12), "of the steps after the first"
    assert measures.tokens_per_s_per_rank == pytest.approx(2 / (1 / 110 + 1 / 105), rel=1e-12)
    assert (measures.tokens_per_s, measures.samples_per_s) == (None, None)
    assert measures.memory == PeakMemory(device=9)
    assert (measures.time, measures.channels, measures.hosts, measures.skipped) == (None, (), (), None)


def test_skipped_and_nan_steps() -> None:
    run = foreign(loss=[1.0, float("nan"), 2.0, float("inf")], skipped=[0, 1, 1, 2])
    assert (measure(run).skipped, measure(run).nan_steps) == (2, 2)
    assert measure(foreign(nan_steps=[0, 3])).nan_steps == 3


# ---------------------------------------------------------------- where the time goes


def test_time_of_a_step_is_computation_and_waiting(tmp_path: Path) -> None:
    measures = planted(tmp_path, Planted("naive-zfp8", 1, 0.4, 2.7, 0.25, exposed=0.25))
    time = measures.time
    assert time is not None
    assert time.step == pytest.approx(0.4)
    assert time.compute == pytest.approx(0.3)
    assert (time.exposed, time.exposed_part) == (pytest.approx(0.1), pytest.approx(0.25))
    assert time.hidden == pytest.approx(0.05)
    assert (time.encode, time.decode) == (pytest.approx(0.01), pytest.approx(0.01))
    assert time.exposed + time.hidden == pytest.approx(time.encode + time.decode + time.transfer)


def test_traffic_by_channel_and_dimension(tmp_path: Path) -> None:
    lines = log_lines(Planted("naive-zfp8", 1, 0.4, 2.7, 0.25))
    place = next(i for i, line in enumerate(lines) if '"traffic"' in line)
    event = json.loads(lines[place])
    (dp,) = event["channels"]
    more = {"phase": "FORWARD", "codec": "none", "message_bytes": 3, "wire_bytes": 3, "sampled_error": 0.1}
    event["channels"] += [{**dp, "dimension": "TP", **more}, {**dp, "dimension": "TP"}]
    lines[place] = json.dumps(event)
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n")
    measures = measure(from_log(path))
    assert [(item.dimension, item.codec) for item in measures.channels] == [
        ("DP", "zfp:8"),
        ("TP", "none"),
        ("TP", "zfp:8"),
    ]
    first, second = measures.dimensions
    assert (first.dimension, first.wire_over_message, first.codec) == ("DP", 0.25, "zfp:8")
    assert (second.message_bytes, second.wire_bytes) == (10_000_003, 2_500_003)
    assert (second.codec, second.sampled_error, second.phase) == (None, 0.1, None)
    assert second.exposed_s == pytest.approx(2 * first.exposed_s)


def test_hosts_and_memory(tmp_path: Path) -> None:
    measures = planted(tmp_path, Planted("baseline", 1, 0.4, 2.7, hosts={"n1": 1.0, "n2": 1.5}))
    assert [(item.host, item.ranks, item.over_peers) for item in measures.hosts] == [("n1", 4, 1.0), ("n2", 4, 1.5)]
    assert measures.hosts[1].compute_s == pytest.approx(0.4 * 0.8 * 1.5)
    assert measures.memory == PeakMemory(host_rank=300_000_000, host=2_300_000_000)


def test_without_ranks_or_steps_nothing_is_divided_by_them(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = log_lines(Planted("baseline", 1, 0.4, 2.7))
    for old, new in (
        ('"ranks": 8', '"ranks": 0'),
        ('"to_step": 12', '"to_step": 1'),
        ('"channels": [{', '"channels": [7, {'),
    ):
        path.write_text("".join(line.replace(old, new) + "\n" for line in lines))
        measures = measure(from_log(path))
        assert measures.samples_per_s == 20
        assert measures.time is None or "channels" in new
    for name in ("ranks", "global_batch", "seq_len", "message_bytes", "to_step", "exposed_s"):
        for value in ("1e308", "-1e308", "1e999", "-3", "true", "null", '"x"'):
            path.write_text("".join(re.sub(f'"{name}": [0-9.]+', f'"{name}": {value}', line) + "\n" for line in lines))
            assert all(note.isprintable() for note in measure(from_log(path)).notes)
    path.write_text("".join(line + "\n" for line in lines))
    assert read(path).steps.column("seconds") == [4.0, 4.0, *[0.4] * 10]
