"""Tests of the candidates of a program's study: controls, systems of its framework, and diagnosed combinations."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpcbench.cli import app
from hpcbench.contract.program import Program
from hpcbench.diagnose.diagnosis import Diagnosis, Gain
from hpcbench.study.find_scheme import NOTHING, find_scheme
from hpcbench.tune.programs import list_names, plan_program
from hpcbench.tune.prune import NOTABLE, SearchPlan

STUDY = """\
study: tiny
site: local
program: {command: python train.py --seed {seed}, log: nanogpt, steps: 4}
nodes: 1
ranks_per_node: 2
schemes:
  lazy: {environment: {TORCH_GLOO_LAZY_INIT: "1"}}
"""
STUDY = STUDY.replace("python train.py --seed {seed}", '"python train.py --seed {seed}"')


def _program(command: str, log: str) -> Program:
    return Program.model_validate({"command": command, "log": log, "steps": 4})


def _diagnosis(*gains: tuple[str, str, float], steps: int | None = 3) -> Diagnosis:
    return Diagnosis(
        paths=(),
        ranks=(0,),
        world=2,
        steps=steps,
        step_seconds=1.0,
        is_gpu=False,
        computing=0.5,
        exposed=0.5,
        has_waiting=False,
        rows=(),
        gains=tuple(Gain(dimension, codec, factor, None) for dimension, codec, factor in gains),
        codec_speed=50.0,
        timeline=(),
    )


def _plan(names: list[str], diagnosis: Diagnosis | None) -> SearchPlan:
    schemes = {name: find_scheme(name, {}, NOTHING, "test")[0] for name in names}
    return plan_program(schemes, "baseline", diagnosis, 0.01)


def test_controls_are_added() -> None:
    names = list_names(_program("python train.py", "nanogpt"), ["baseline", "zeropp"], ["mine"], "baseline")
    assert names == ["zeropp", "mine", "naive-bf16", "naive-int8"]


@pytest.mark.parametrize(
    ("command", "log", "systems"),
    [
        ("pretrain_gpt.py --bf16", "megatron-lm", {"megatron-bf16"}),
        (
            "pretrain_gpt.py --bf16 --use-distributed-optimizer",
            "megatron-lm",
            {"megatron-bf16", "megatron-bf16-fp32-sums"},
        ),
        ("pretrain_gpt.py", "megatron-lm", set()),
        ("train.py --model.converters=float8", "torchtitan", {"torchtitan-fp8-gather"}),
        ("train.py --bf16", "nanogpt", set()),
    ],
)
def test_systems_of_the_framework_are_added(command: str, log: str, systems: set[str]) -> None:
    assert set(list_names(_program(command, log), [], [], "baseline")) - {"naive-bf16", "naive-int8"} == systems


def test_a_scheme_without_a_codec_saves_nothing() -> None:
    diagnosis = _diagnosis(("DP", "bf16", 1.25), ("DP", "free communication", 2.0))
    object.__setattr__(diagnosis, "by_dimension", lambda: {"DP": 0.1})
    plan = _plan(["baseline", "identity", "megatron-bf16"], diagnosis)
    identity, other = plan.combinations["identity"], plan.combinations["megatron-bf16"]
    assert (identity.seconds, identity.loss) == (0.0, 0.0) and other.seconds < 0


def test_a_program_without_traces_has_no_predictions() -> None:
    plan = _plan(["baseline", "naive-bf16", "zeropp", "identity"], None)
    assert list(plan.combinations) == ["naive-bf16", "zeropp", "identity"] and plan.can_pay
    assert plan.controls == ["naive-bf16"] and plan.lossless == {"identity"}
    assert plan.best_gain is None


def test_a_diagnosis_predicts_combinations() -> None:
    free = "free communication"
    gains = [("DP", "bf16", 1.25), ("DP", "int8", 1.6), ("DP", "4 bits", 1.8), ("DP", free, 2.0)]
    gains += [("TP", "bf16", 1.1), ("TP", free, 1.2), ("unknown", "bf16", 1.5), ("unknown", free, 1.01)]
    diagnosis = _diagnosis(*gains)
    # by_dimension() lists the dimensions of rows. This diagnosis has no rows, so use the dimensions of its gains.
    object.__setattr__(diagnosis, "by_dimension", lambda: dict.fromkeys(("DP", "TP", "unknown"), 0.1))
    plan = _plan(["baseline", "naive-bf16", "naive-int8", "megatron-bf16"], diagnosis)
    both = plan.combinations["dp-int8-256-tp-bf16"]
    assert both.seconds == pytest.approx((1 / 1.6 - 1) + (1 / 1.1 - 1))
    assert plan.combinations["naive-bf16"].seconds == pytest.approx((1 / 1.25 - 1) + (1 / 1.1 - 1))
    assert not any("unknown" in name for name in plan.combinations)
    assert ("TP", "int8:256") in {(each.dimension, each.codec) for each in plan.pruned}
    bound = 1 + (1 / 2 - 1) + (1 / 1.2 - 1) + (1 / 1.01 - 1)
    assert plan.best_gain == pytest.approx(1 / bound - 1)


def test_little_exposed_communication_ends_the_search() -> None:
    diagnosis = _diagnosis(("DP", "bf16", 1.005), ("DP", "free communication", 1.01))
    plan = _plan(["baseline", "naive-bf16", "megatron-bf16"], diagnosis)
    assert plan.best_gain is not None and plan.best_gain < NOTABLE and not plan.can_pay


def test_traces_need_steps() -> None:
    with pytest.raises(Exception, match="contain no steps"):
        _plan(["baseline", "naive-bf16"], _diagnosis(steps=None))


def test_the_plan_of_a_program_names_its_candidates(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(STUDY)
    command = ["tune", str(path), "--loss-budget", "1%", "--dry-run", "--output", str(tmp_path / "plan.json")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "plan.json").read_text()
    assert all(f'"{name}"' in text for name in ("lazy", "naive-bf16", "naive-int8"))
    assert json.loads(text)["next_round"] == ["baseline", "naive-bf16", "naive-int8", "lazy"]
    shown = CliRunner().invoke(app, command[:-2]).output
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "naive-int8 algorithm encoded: all traffic int8:256" in rows and any(row.startswith("lazy ") for row in rows)
    assert "Next: round 1 (race) runs baseline, naive-bf16, naive-int8, lazy with one seed" in " ".join(rows)


def test_traces_are_for_programs(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(
        "study: e\nsite: local\nmodel: {layers: 2, hidden: 32, heads: 2, vocab: 256}\ndata: {source: stdlib}\n"
        "train: {steps: 3, warmup_steps: 1, global_batch: 4, micro_batch: 2, seq_len: 16, precision: fp32, zero: 0}\n"
        "layout: {dp: 2}\nmatrix: {scheme: [baseline]}\n"
    )
    command = ["tune", str(path), "--loss-budget", "1%", "--dry-run", "--traces", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0 and "--traces: applies only to studies with `program:`" in str(result.exception)
