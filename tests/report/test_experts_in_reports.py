"""Tests of experts in reports: balance, drops, and all-to-all time, from the log of a run."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from planted_results import Planted, log_lines, write
from report_tables import tables

from hpcbench.collect.submission import from_log
from hpcbench.report.build import build
from hpcbench.report.expert_layers import read_expert_loads
from hpcbench.report.measures import Measures, measure
from hpcbench.report.quantities.experts import EXPERTS
from hpcbench.report.sections import read

LAYERS: list[dict[str, Any]] = [
    {"layer": 1, "tokens": [40, 20, 20, 0], "dropped": 8, "balance_loss": 1.2, "z_loss": 0.5},
    {"layer": 3, "tokens": [20, 20, 20, 20], "dropped": 0, "balance_loss": 1.0, "z_loss": 0.5},
]


def lines(run: Planted, layers: Any) -> str:
    """Return the log of a run that only exchanges rows between experts, with the counts of the experts."""
    collected = []
    for line in log_lines(run):
        if '"traffic"' in line:
            event = json.loads(line)
            for channel in event["channels"]:
                channel["dimension"], channel["phase"], channel["kind"] = "EP", "FORWARD", "ACT"
            span = {key: event[key] for key in ("from_step", "to_step")}
            collected += [json.dumps(event), json.dumps({"event": "experts", **span, "layers": layers})]
        else:
            collected.append(line)
    return "".join(f"{line}\n" for line in collected)


def measured(path: Path, layers: Any) -> Measures:
    path.write_text(lines(Planted("mzhybrid", 1, 0.4, 2.7), layers))
    return measure(from_log(path))


def test_a_run_has_the_quantities_that_follow_from_its_counts(tmp_path: Path) -> None:
    run = measured(tmp_path / "log.txt", LAYERS)
    values = {quantity.key: quantity.compute(run) for quantity in EXPERTS}
    assert values["expert_imbalance"] == pytest.approx((2.0 + 1.0) / 2)
    assert values["dropped_part"] == pytest.approx(8 / 160)
    assert values["unused_experts"] == 1
    (dimension,) = run.dimensions
    assert values["all_to_all_exposed_s"] == dimension.exposed_s == pytest.approx(0.2 * 0.4)
    assert values["all_to_all_hidden_s"] == dimension.hidden_s


@pytest.mark.parametrize(
    "layers",
    [
        None,
        [],
        [{**LAYERS[0], "tokens": None}],
        [{**LAYERS[0], "tokens": [0, 0]}],
        [{**LAYERS[0], "tokens": [1, -1]}],
        [{**LAYERS[0], "dropped": 100}],
    ],
)
def test_nonsense_is_no_quantity(tmp_path: Path, layers: Any) -> None:
    run = measured(tmp_path / "log.txt", layers)
    assert run.extract(read_expert_loads) is None and run.samples_per_s


def test_a_table_says_what_experts_got(tmp_path: Path) -> None:
    root = tmp_path / "001"
    runs = [Planted(scheme, 1, 0.4, 2.7) for scheme in ("baseline", "mzhybrid")]
    write(root, runs)
    for run in runs:
        (root / "runs" / run.id / "log.txt").write_text(lines(run, LAYERS))
    (table,) = tables(build(read([root]).sections, ["experts"]), "experts")
    heads = [column.head for column in table.columns]
    assert heads[:4] == ["scheme", "most/mean", "dropped", "unused"]
    for row in table.rows:
        values = [entry.value for entry in row][1:4]
        assert values == [pytest.approx(1.5), pytest.approx(0.05), 1]
    assert "baseline, % of the choices by expert: layer 1: 50 25 25 0; layer 3: 25 25 25 25." in table.notes


DENSE = 640_000_000.0
"""Operations per sample of the synthetic model without experts."""
ROUTER = 2 * 128 * 4 * 120


def beyond_dense(rows: float, routers: int = 1) -> float:
    """Return the additional operations of a sample with `rows` rows in each of two layers, computed by hand."""
    return 3 * 2 * ((rows - 128) * 16 * 120**2 + routers * ROUTER)


def with_experts(path: Path, layers: Any, *, ep: int, tp: int = 1, **changes: Any) -> Measures:
    """Return a run whose steps kept different numbers of tokens.

    Experts have slots for 320 rows, and tokens choose 256.
    """
    model = {"count": 4, "top": 2, "every": 2, "capacity": 1.25, **changes}
    places = 320 if ep > 1 or tp > 1 else 256
    lines_of_run = []
    for number, line in enumerate(lines(Planted("mzhybrid", 1, 0.4, 2.7), layers).splitlines()):
        if '"configuration"' in line:
            event = json.loads(line)
            event["run"]["model"]["experts"] = model
            event["run"]["layout"] |= {"ep": ep, "tp": tp}
            event["model_flops_per_sample"] = DENSE + beyond_dense(256)
            event["hardware_flops_per_sample"] = DENSE + beyond_dense(places, tp)
            line = json.dumps(event)
        if line.startswith("step "):
            varies = 1 - number % 5 / 20
            line = re.sub("model ([0-9.]+)", lambda match, f=varies: f"model {f * float(match[1]):.3f}", line)
        lines_of_run.append(f"{line}\n")
    path.write_text("".join(lines_of_run))
    return measure(from_log(path))


@pytest.mark.parametrize(("ep", "tp", "executed"), [(1, 1, 0.95 * 256), (4, 1, 320), (1, 2, 320), (2, 2, 320)])
def test_dropped_tokens_are_not_needed_and_empty_places_are_executed(tmp_path, ep: int, tp: int, executed: float):
    """A twentieth of the choices was dropped. Varying step lines cause no note."""
    run = with_experts(tmp_path / "log.txt", LAYERS, ep=ep, tp=tp)
    assert run.notes == ()
    rate = run.samples_per_s / 8
    assert run.model_flops_per_rank / rate == pytest.approx(DENSE + beyond_dense(0.95 * 256), rel=1e-12)
    assert run.hardware_flops_per_rank / rate == pytest.approx(DENSE + beyond_dense(executed, tp), rel=1e-12)


def test_without_counts_the_lines_of_the_steps_say_what_was_needed(tmp_path: Path) -> None:
    run = with_experts(tmp_path / "log.txt", None, ep=4)
    printed = run.run.log.steps.column("model_flops_per_rank", first=run.basis.first)
    assert run.model_flops_per_rank == median(printed)


def test_experts_that_drop_nothing_need_all_choices(tmp_path: Path) -> None:
    run = with_experts(tmp_path / "log.txt", None, ep=1, drop="none")
    assert run.model_flops_per_rank * 8 / run.samples_per_s == pytest.approx(DENSE + beyond_dense(256), rel=1e-12)


def test_a_stated_work_that_leaves_out_empty_places_is_named(tmp_path: Path) -> None:
    run = with_experts(tmp_path / "log.txt", LAYERS, ep=4, min_capacity=128)
    assert any("hardware_flops_per_sample is" in note for note in run.notes)


def test_the_table_of_speeds_says_which_rows_are_counted(tmp_path: Path) -> None:
    with_experts(tmp_path / "log.txt", LAYERS, ep=4)
    (table,) = tables(build(read([tmp_path / "log.txt"]).sections, ["speed"]), "speed")
    assert "Model FLOP/s exclude tokens that experts dropped" in table.notes[-1]
