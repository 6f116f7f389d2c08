"""Tests of scheme rules that do not fit a run: an error with file, line, field and remedy, or a note."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.plan_jobs import idle_notes
from hpcbench.codecs import spec
from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.scheme_fit import find_sample_misfit
from hpcbench.contract.training import Data, Train
from hpcbench.errors import UserError
from hpcbench.predict.workload import make_train
from hpcbench.resources import data_dir
from hpcbench.study import presets
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study
from hpcbench.study.size import Capacity

TRAIN: dict[str, Any] = {"steps": 20, "global_batch": 64}
LAYOUT = {"dp": 2, "tp": 2, "pp": 2}
ROOM = Capacity("local", None, 8)


def runs_of(
    directory: Path,
    scheme: Any,
    *,
    matrix: dict[str, Any] | None = None,
    capacity: Capacity = ROOM,
    layout: dict[str, int] = LAYOUT,
    **train: Any,
) -> list[ExpandedRun]:
    """Return the runs of a preset, or of the scheme `mine` that the study defines."""
    schemes = {} if isinstance(scheme, str) else {"mine": scheme}
    name = scheme if isinstance(scheme, str) else "mine"
    study = {
        "study": "s",
        "model": "gpt-tiny",
        "train": {**TRAIN, **train},
        "layout": layout,
        "schemes": schemes,
        "matrix": {"scheme": ["baseline", name], **(matrix or {})},
    }
    path = directory / "s.yaml"
    path.write_text(json.dumps(study, indent=1), encoding="utf-8")
    return expand(load_study(path), capacity)


def refusal(directory: Path, scheme: Any, **settings: Any) -> tuple[str, str]:
    """Return the line of the file that the error names, and the error message."""
    with pytest.raises(UserError) as caught:
        runs_of(directory, scheme, **settings)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{directory}/s.yaml:"), message
    number = int(message.removeprefix(f"{directory}/s.yaml:").split(":")[0])
    return (directory / "s.yaml").read_text(encoding="utf-8").splitlines()[number - 1].strip(), message


def rule(**fields: Any) -> dict[str, Any]:
    return {"rules": [{"codec": "int8", **fields}]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"dimension": "DP", "phase": "FORWARD"},
            "no run has such traffic: DP has only DP BACKWARD GRAD, DP STEP",
        ),
        (
            {"dimension": "TP", "kind": "OPTIM"},
            "TP has only TP FORWARD ACT, TP BACKWARD GRAD, TP FORWARD PARAM",
        ),
        ({"dimension": "TP", "kind": "ACT", "axis": "i"}, "has only TP FORWARD PARAM i, TP BACKWARD GRAD i"),
        ({"phase": "STEP", "kind": "ACT"}, "there is only DP BACKWARD GRAD"),
        (
            {"codec": "none", "min_bytes": 1},
            "`min_bytes` and `between_nodes` restrict a codec, but the codec is none",
        ),
        ({"codec": "none", "between_nodes": True}, "leave them out"),
        ({"min_bytes": -1}, "schemes.mine.rules.0.min_bytes: must be at least 0, not -1"),
        ({"between_nodes": 1}, "between_nodes: must be true or false"),
        ({"from_step": 0}, "schemes.mine.rules.0.from_step: must be at least 1, not 0"),
        ({"until_step": 0}, "schemes.mine.rules.0.until_step: must be at least 1, not 0"),
        ({"dimension": "PP", "feedback": True}, "or `dimension: PP` and `phase: BACKWARD`"),
        (
            {"dimension": "PP", "phase": "BACKWARD", "feedback": True, "feedback_reset": 9},
            "`feedback_reset` applies to sums of gradients, not to messages between stages: leave feedback_reset out",
        ),
        ({"dimension": "PP", "sample_changes": 9}, "write `dimension: PP` and `phase: FORWARD`"),
        (
            {"dimension": "PP", "phase": "FORWARD", "codec": "mpc", "sample_changes": 9},
            "`sample_changes` reduces the error of a codec, but mpc is lossless: leave sample_changes out",
        ),
        (
            {"dimension": "PP", "phase": "FORWARD", "min_bytes": 5, "sample_changes": 9},
            "`sample_changes` requires that every message is encoded: leave min_bytes and between_nodes out",
        ),
        (
            {"low_rank": 2},
            "`low_rank` applies to the reduction of gradients: write",
        ),
        ({"low_rank": 2, "dimension": "DP", "kind": "OPTIM"}, "without kind OPTIM"),
        ({"low_rank": 2, "dimension": "DP", "feedback": True}, "by itself: leave feedback out"),
        ({"dimension": "DP", "feedback_average": 0.8}, "`feedback_average` changes error feedback, which is off: add"),
        ({"dimension": "DP", "feedback_reset": 9}, "`feedback_reset` changes error feedback, which is off: add"),
        (
            {"dimension": "DP", "kind": "OPTIM", "feedback": True, "feedback_reset": 9},
            "`feedback_reset` applies to gradients, not to the momenta of 1-bit Adam: leave feedback_reset out",
        ),
        ({"feedback_average": 1}, "schemes.mine.rules.0.feedback_average: must be below 1.0, not 1"),
        (
            {"codec": "int4:32/256", "mixed_bits": 5},
            "`mixed_bits` applies to the reduction of gradients: write",
        ),
        (
            {"dimension": "DP", "mixed_bits": 5},
            "instead of 4, but the codec is int8:256: use int4:16/256 or int4:32/256",
        ),
        (
            {"dimension": "DP", "codec": "int4:32/256", "mixed_bits": 2.3},
            "mixed_bits 2.3 is not between 2.375 and 8.1875, the bits per value if all values have 2 or 8 bits",
        ),
        (
            {"dimension": "DP", "codec": "int4:32/256", "mixed_bits": 5, "feedback": True},
            "`mixed_bits` does not support feedback: leave feedback out",
        ),
        (
            {"dimension": "DP", "codec": "int4:32/256", "mixed_bits": 5, "min_bytes": 9},
            "`mixed_bits` does not support min_bytes: leave min_bytes out",
        ),
        ({"low_rank": -1}, "schemes.mine.rules.0.low_rank: must be at least 0, not -1"),
        (
            {"differences": True},
            "`differences` applies only to weights that are gathered after each step: write `dimension: ZERO`",
        ),
        ({"differences": True, "dimension": "ZERO", "phase": "FORWARD"}, "without phase FORWARD or BACKWARD"),
        (
            {"differences": True, "dimension": "ZERO", "codec": "mpc"},
            "`differences` reduces the error of a codec, but codec mpc is lossless: leave differences out",
        ),
        (
            {"from_step": 5, "until_step": 4},
            "until_step 4 is before from_step 5, so the rule applies to no step: raise",
        ),
    ],
)
def test_rules_that_can_never_apply_are_refused_at_their_line(tmp_path: Path, fields: Any, expected: str) -> None:
    line, message = refusal(tmp_path, rule(**fields))
    assert expected in message and "schemes.mine.rules.0" in message
    assert line == "{" or line.partition(":")[0].strip('"') in fields


@pytest.mark.parametrize("fields", [{"dimension": "DP", "phase": "STEP"}, {"kind": "OPTIM"}])
def test_rules_for_momenta_want_one_bit_adam(tmp_path: Path, fields: Any) -> None:
    line, message = refusal(tmp_path, rule(**fields))
    assert line == "{" and "schemes.mine.rules.0: rule 1 (" in message
    assert "is for traffic of 1-bit Adam only, but the optimizer is adamw: set optimizer: onebit-adam" in message
    assert runs_of(tmp_path, {**rule(**fields), "optimizer": "onebit-adam"}, zero=0, clip=0)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_zeropp_wants_stage_3(tmp_path: Path, zero: int) -> None:
    line, message = refusal(tmp_path, "zeropp", zero=zero)
    assert line == f'"zero": {zero}'
    assert (
        f"train.zero: stage {zero} does not gather the weights that rule 1 (ZERO FORWARD int8:256) of scheme zeropp"
        in message
    )
    assert "set zero to 3" in message


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("phase", [None, "FORWARD", "STEP"])
def test_a_rule_that_encodes_no_weights_fits_every_stage(tmp_path: Path, zero: int, phase: str | None) -> None:
    """At some ZeRO stages, the rule applies to no message. A note reports this."""
    exact = {"dimension": "ZERO", "codec": "none", **({"phase": phase} if phase else {})}
    carries = zero > 0 if phase is None else zero == 3 if phase == "FORWARD" else zero in (1, 2)
    notes = idle_notes(runs_of(tmp_path, {"rules": [exact]}, zero=zero))
    assert len(notes) == (not carries) and all("applies to no message in this layout" in note for note in notes)


def test_an_exact_rule_of_one_stage_does_not_hide_an_encoding_one_of_another(tmp_path: Path) -> None:
    rules = [
        {"dimension": "ZERO", "phase": "STEP", "codec": "int8"},
        {"dimension": "ZERO", "phase": "FORWARD", "codec": "none"},
    ]
    _, message = refusal(tmp_path, {"rules": rules}, zero=3)
    assert "stage 3 does not gather the weights that rule 1 (ZERO STEP int8:256) of scheme mine encodes" in message
    assert "set zero to 1 or 2" in message
    assert runs_of(tmp_path, {"rules": rules}, zero=1)


def test_zeropp_without_the_nodes_copy_is_refused(tmp_path: Path) -> None:
    line, message = refusal(tmp_path, "zeropp", zero=3)
    assert line == '"zeropp"' and "scheme: scheme zeropp: forward and backward pass use different" in message
    assert message.endswith("use one rule for both, or node_copy: true")
    assert runs_of(tmp_path, "zeropp", zero=3, node_copy=True)
    line, message = refusal(tmp_path, {"default": "int8:256:stochastic"}, zero=3)
    assert "the default (int8:256:stochastic) rounds gathered weights at random" in message
    assert "schemes.mine.rules" in message
    line, message = refusal(tmp_path, {"default": "int8:256:stochastic"}, recompute="full")
    assert "recomputed activations differ from those of the forward pass" in message


@pytest.mark.parametrize("scheme", ["naive-zfp8", "naive-int8", "mzhybrid", "sign-feedback", rule(dimension="PP")])
def test_fp64_is_refused_where_a_codec_does_not_take_it(tmp_path: Path, scheme: Any) -> None:
    line, message = refusal(tmp_path, scheme, precision="fp64")
    assert line == '"precision": "fp64"' and "set train.comm_precision to fp32, or use a lossless codec" in message
    assert runs_of(tmp_path, scheme, precision="fp64", comm_precision="fp32")
    assert runs_of(tmp_path, scheme, precision="fp64", matrix={"layout.dp": [1], "layout.tp": [1], "layout.pp": [1]})
    assert runs_of(tmp_path, "naive-mpc", precision="fp64")


GPUS = Capacity("lassen", None, 8, "cuda")


def test_what_a_gpu_does_not_do_is_refused_before_a_job_is_written(tmp_path: Path) -> None:
    sums = {"algorithm": "homomorphic", "default": "int8"}
    line, message = refusal(tmp_path, sums, capacity=GPUS)
    assert line == '"algorithm": "homomorphic",'
    assert "schemes.mine.algorithm: scheme mine cannot run on lassen, whose device is cuda" in message
    assert "algorithm homomorphic sums" in message
    assert message.endswith("use two-shot, or device cpu")
    assert runs_of(tmp_path, sums)
    assert runs_of(tmp_path, {"default": "int8"}, capacity=GPUS)


def test_a_codec_without_kernels_for_a_gpu_is_refused_at_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(spec.FAMILIES, "xpk", replace(spec.FAMILIES["xpk"], on_gpu=False))
    line, message = refusal(tmp_path, {"rules": [{"dimension": "PP", "codec": "xpk"}]}, capacity=GPUS)
    assert (
        line == "{"
        and "schemes.mine.rules.0: " in message
        and "codec xpk has no kernels for a GPU: use another" in message
    )
    line, message = refusal(tmp_path, {"default": "xpk"}, capacity=GPUS)
    assert line == '"default": "xpk"' and "schemes.mine.default: " in message
    line, message = refusal(tmp_path, "naive-xpk", capacity=GPUS)
    assert line == '"naive-xpk"' and "codec xpk has no kernels" in message
    assert runs_of(tmp_path, "naive-xpk")


def test_more_ranks_than_16_bits_hold_the_sums_of_are_refused(tmp_path: Path) -> None:
    sums = {"algorithm": "homomorphic", "default": "int8"}
    many = {"layout": {"dp": 259}, "global_batch": 259}
    line, message = refusal(tmp_path, sums, **many, zero=0)
    assert line == '"algorithm": "homomorphic",' and "sums of 259 ranks of DP do not fit in 16 bits" in message
    assert runs_of(tmp_path, sums, **many, zero=1), "a reduce-scatter does not sum in 16 bits"
    assert runs_of(tmp_path, sums, layout={"dp": 258}, global_batch=258, zero=0)


def test_one_bit_adam_is_not_offloaded(tmp_path: Path) -> None:
    line, message = refusal(tmp_path, "onebit-adam", offload=True, zero=0)
    assert line == '"offload": true,' and "train.offload: 1-bit Adam averages momenta on the device" in message


def test_rules_without_messages_in_a_layout_are_noted_once(tmp_path: Path) -> None:
    scheme = {"rules": [{"dimension": "DP", "codec": "int8"}, {"dimension": "PP", "codec": "zfp:8"}]}
    runs = runs_of(tmp_path, scheme, matrix={"layout.pp": [1, 2]})
    assert idle_notes(runs) == ["scheme mine: rule 2 (PP zfp:8) applies to no message in this layout, in 3 of 6 runs"]
    runs = runs_of(tmp_path, scheme, matrix={"layout.pp": [1]})
    assert idle_notes(runs) == ["scheme mine: rule 2 (PP zfp:8) applies to no message in this layout"]
    assert idle_notes(runs_of(tmp_path, scheme)) == []


LAYOUTS = [{"dp": dp, "tp": tp, "pp": pp} for dp in (1, 2) for tp in (1, 2) for pp in (1, 2)]


def test_presets_and_studies_stay_accepted_in_every_layout(tmp_path: Path) -> None:
    names = [
        pattern.format(rate=8, dp=8, mp=16, share=0.01, rank=4)
        for pattern in presets.schemes()
        if pattern != "baseline"
    ]
    for name in names:
        assert presets.is_scheme(name), name
        stage = {"zeropp": {"zero": 3, "node_copy": True}, "onebit-adam": {"zero": 0, "clip": 0}}.get(name, {})
        zip_ = {f"layout.{key}": [layout[key] for layout in LAYOUTS] for key in ("dp", "tp", "pp")}
        samples = {"data.samples": [TRAIN["global_batch"]]} if name == "aq-sgd" else {}
        runs = runs_of(tmp_path, name, matrix={"zip": zip_, **samples}, **stage)
        assert len(runs) == 3 * 2 * len(LAYOUTS)
    for path in sorted(data_dir("studies").glob("*.yaml")):
        runs = expand(load_study(path), Capacity("any", 4, 4) if "neox" in path.name else ROOM)
        assert idle_notes(runs) == []


def test_an_algorithm_that_cannot_carry_out_a_rule_is_refused_at_its_scheme(tmp_path: Path) -> None:
    sums = {"algorithm": "homomorphic", "default": "int8", "rules": [{"dimension": "DP", "codec": "zfp:8"}]}
    _, message = refusal(tmp_path, sums)
    assert message.endswith(
        "schemes.mine: rule 1 (DP zfp:8): algorithm homomorphic sums 8-bit integers, rounded to nearest: use codec "
        "int8 instead of zfp:8, or algorithm encoded"
    )


def test_a_rule_that_begins_after_the_last_step_is_noted(tmp_path: Path) -> None:
    (note,) = idle_notes(runs_of(tmp_path, rule(dimension="DP", from_step=21)))
    assert "applies to no message: its first step is 21, but the run has only 20 steps" in note
    assert not idle_notes(runs_of(tmp_path, rule(dimension="DP", from_step=20)))


@pytest.mark.parametrize(
    ("train", "layout", "message"),
    [
        (
            {"sync": "bsp", "zero": 1, "clip": 0},
            {"dp": 2},
            "rules with steps need workers in the same step, but sync is bsp: use all-reduce",
        ),
        (
            {"schedule": "pipedream", "clip": 0},
            {"pp": 2},
            "schedule pipedream sends messages of several steps at once",
        ),
    ],
)
def test_rules_with_steps_want_ranks_in_the_same_step(tmp_path: Path, train: Any, layout: Any, message: str) -> None:
    _, refused = refusal(tmp_path, rule(until_step=4), layout=layout, **train)
    assert message in refused and refused.endswith("leave from_step and until_step out")


def test_each_step_of_a_run_is_checked(tmp_path: Path) -> None:
    """The default codec is valid, but the codec of the rule for later steps is not."""
    both = {"rules": [{"codec": "int8:256:stochastic", "dimension": "TP", "from_step": 3, "until_step": 5}]}
    _, message = refusal(tmp_path, both, recompute="full")
    assert "recomputed activations differ from those of the forward pass" in message


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"zero": 2}, "train.zero 2 sums pieces in each micro-batch: set train.zero to 0 or 1"),
        ({"optimizer": "onebit-adam", "zero": 0, "clip": 0}, "momenta of 1-bit Adam replace gradients"),
        ({"prune": {"pattern": "2:4"}}, "train.prune removes values"),
        ({"precision": "fp64"}, "errors are kept in fp32"),
    ],
)
def test_low_rank_gradients_want_whole_sums(tmp_path: Path, train: Any, message: str) -> None:
    low_rank = {"rules": [{"dimension": "DP", "codec": "none", "low_rank": 2}]}
    assert runs_of(tmp_path, low_rank)
    _, refused = refusal(tmp_path, low_rank, **train)
    assert message in refused


def test_servers_do_not_average_errors(tmp_path: Path) -> None:
    averaged = rule(dimension="DP", feedback=True, feedback_average=0.8, feedback_reset=9)
    assert runs_of(tmp_path, averaged)
    _, refused = refusal(tmp_path, averaged, layout={"dp": 2}, sync="bsp", clip=0)
    assert "sync bsp sends gradients to servers, and the errors of servers are neither averaged nor reset" in refused


def test_changes_of_samples_want_samples_that_recur(tmp_path: Path) -> None:
    changes = NamedScheme(name="mine", **rule(dimension="PP", phase="FORWARD", sample_changes=4))
    train, data = make_train(global_batch=8, micro_batch=2, steps=4), Data(samples=16)

    def explain(train: Train = train, data: Data = data, **layout: Any) -> str:
        return find_sample_misfit(changes, train, data, Layout(pp=2, **layout)) or ""

    assert explain() == ""
    assert "training samples never recur: set data.samples" in explain(data=Data())
    assert "is not a multiple of train.global_batch 8: set data.samples to 24" in explain(data=Data(samples=20))
    assert "no sample recurs in 4 steps of 8 samples: set data.samples below 32" in explain(data=Data(samples=32))
    assert "schedule pipedream does not end its steps" in explain(train.changed(schedule="pipedream"))
    assert "layout.tensor 2d splits samples over ranks" in explain(tp=4, tensor="2d")
    _, message = refusal(tmp_path, rule(dimension="PP", phase="FORWARD", sample_changes=4), layout={"pp": 2})
    assert "training samples never recur: set data.samples" in message


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"optimizer": "onebit-adam", "zero": 0, "clip": 0}, "momenta of 1-bit Adam replace gradients"),
        ({"prune": {"pattern": "2:4"}}, "train.prune removes values from messages: leave one of the two out"),
        ({"layout": {"dp": 2}, "sync": "bsp", "clip": 0}, "sync bsp sends shards to servers: use all-reduce"),
        ({"precision": "fp64"}, "fp64, which rule 1"),
    ],
)
def test_mixed_widths_need_whole_gradients_of_replicas(tmp_path: Path, train: Any, message: str) -> None:
    mixed = {"rules": [{"dimension": "DP", "codec": "int4:16/256:stochastic", "mixed_bits": 4.5}]}
    assert runs_of(tmp_path, mixed)
    _, refused = refusal(tmp_path, mixed, **train)
    assert message in refused


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"zero": 3}, "train.zero 3 frees weights after their use: set train.zero to 1 or 2"),
        ({"layout": {"dp": 2}, "sync": "bsp", "clip": 0}, "with sync bsp workers read weights at different times"),
    ],
)
def test_differences_need_weights_that_remain(tmp_path: Path, train: Any, message: str) -> None:
    differences = rule(dimension="ZERO", differences=True)
    assert runs_of(tmp_path, differences)
    _, refused = refusal(tmp_path, differences, **train)
    assert message in refused
