"""Tests of optional settings of a study. Each setting changes a run. A study in which a setting has no effect is
refused."""

import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from mpi4py import MPI
from pydantic import BaseModel

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract import run as contract
from hpcbench.contract.events import Evaluation, Event
from hpcbench.contract.log_line import parse
from hpcbench.contract.problems import find_section
from hpcbench.contract.program import Program
from hpcbench.contract.step_line import Step
from hpcbench.errors import UserError
from hpcbench.predict.machine import make_gpu_machine
from hpcbench.predict.prediction import predict
from hpcbench.predict.workload import make_workload
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.schema import Study
from hpcbench.study.size import Capacity
from hpcbench.train import text
from hpcbench.train.log import LogWriter
from hpcbench.train.loop import train, trainer_of

TESTS = Path(__file__).parents[1]
ROOM = Capacity("local", None, 8)
BASE: dict[str, Any] = {
    "study": "s",
    "model.layers": 2,
    "model.hidden": 16,
    "model.heads": 2,
    "train.steps": 4,
    "train.warmup_steps": 1,
    "train.global_batch": 8,
    "train.micro_batch": 2,
    "train.seq_len": 16,
    "train.eval_samples": 4,
    "layout.dp": 1,
}
FULL: dict[str, Any] = {"model.experts": {"count": 4, "top": 2, "capacity": 0.5, "min_capacity": 1}}
"""Settings under which experts must drop tokens."""
ONE_BIT: dict[str, Any] = {"train.zero": 0, "train.steps": 6, "train.clip": 0.0, "train.optimizer": "onebit-adam"}
PRUNED: dict[str, Any] = {"train.prune": {"pattern": "unstructured", "sparsity": 0.5, "begin": 1, "end": 3}}
TRAINS, PREDICTED = "trains", "predicted"
"""Where a change is visible: in the log of a one-rank run, or in the prediction of time, memory and traffic."""

CHANGES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "model.kv_heads": ({}, 1, TRAINS),
    "model.mlp_width": ({}, 24, TRAINS),
    "model.activation": ({}, "swiglu", TRAINS),
    "model.norm": ({}, "rmsnorm", TRAINS),
    "model.bias": ({"train.lr": 0.5}, False, TRAINS),
    "model.vocab": ({}, 300, TRAINS),
    "model.positions": ({}, "learned", TRAINS),
    "model.rotary_fraction": ({}, 0.5, TRAINS),
    "model.rotary_base": ({}, 100.0, TRAINS),
    "model.parallel_residual": ({}, False, TRAINS),
    "model.tied": ({}, True, TRAINS),
    "model.experts": ({}, {"count": 4}, TRAINS),
    "model.experts.every": (FULL, 2, TRAINS),
    "model.experts.first": (FULL, 1, TRAINS),
    "model.experts.width": (FULL, 24, TRAINS),
    "model.experts.top": (FULL, 1, TRAINS),
    "model.experts.drop": (FULL, "probability", TRAINS),
    "model.experts.capacity": (FULL, 1.0, TRAINS),
    "model.experts.min_capacity": (FULL, 6, TRAINS),
    "model.experts.shared": (FULL, True, TRAINS),
    "model.experts.shared_width": ({"model.experts": {"count": 4, "shared": True}}, 24, TRAINS),
    "model.experts.balance": (FULL, 1.0, TRAINS),
    "model.experts.z_loss": (FULL, 1.0, TRAINS),
    "data.valid_fraction": ({}, 0.3, TRAINS),
    "train.warmup_steps": ({}, 2, TRAINS),
    "train.micro_batch": ({}, 4, PREDICTED),
    "train.seq_len": ({}, 8, TRAINS),
    "train.precision": ({}, "bf16", TRAINS),
    "train.comm_precision": ({"layout.dp": 2}, "bf16", PREDICTED),
    "train.comm_precision.activations": ({"layout.tp": 2}, "bf16", PREDICTED),
    "train.comm_precision.gradients": ({"layout.dp": 2}, "bf16", PREDICTED),
    "train.comm_precision.parameters": ({"layout.dp": 2}, "bf16", PREDICTED),
    "train.zero": ({"layout.dp": 2}, 3, PREDICTED),
    "train.seed": ({}, 7, TRAINS),
    "train.lr": ({}, 0.5, TRAINS),
    "train.min_lr": ({}, 1e-5, TRAINS),
    "train.beta1": ({}, 0.1, TRAINS),
    "train.beta2": ({}, 0.1, TRAINS),
    "train.eps": ({}, 0.1, TRAINS),
    "train.weight_decay": ({"train.lr": 0.5}, 0.9, TRAINS),
    "train.clip": ({}, 1e-4, TRAINS),
    "train.bucket_mb": ({"layout.dp": 2}, 0.001, PREDICTED),
    "train.eval_every": ({}, 2, TRAINS),
    "train.eval_samples": ({}, 8, TRAINS),
    "train.schedule": ({"layout.pp": 2}, "gpipe", PREDICTED),
    "train.recompute": ({}, "full", PREDICTED),
    "train.sequence_parallel": ({"layout.tp": 2}, True, PREDICTED),
    "train.offload": ({}, True, PREDICTED),
    "train.node_copy": ({"layout.dp": 2, "train.zero": 3}, True, PREDICTED),
    "train.optimizer": ({"train.zero": 0, "train.steps": 6, "train.clip": 0.0}, "onebit-adam", TRAINS),
    "train.freeze_step": (ONE_BIT, 3, TRAINS),
    "train.loss_scale": ({"train.precision": "fp16"}, 2.0, TRAINS),
    "train.loss_scale_window": ({"train.precision": "fp16"}, 1, TRAINS),
    "train.loss_scale_hysteresis": ({"train.precision": "fp16", "train.loss_scale": 2.0**40}, 1, TRAINS),
    "train.prune": ({}, "unstructured", TRAINS),
    "train.prune.sparsity": (PRUNED, 0.25, TRAINS),
    "train.prune.begin": (PRUNED, 2, TRAINS),
    "train.prune.end": (PRUNED, 2, TRAINS),
    "train.prune.every": (PRUNED, 2, TRAINS),
    "layout.dp": ({}, 2, PREDICTED),
    "layout.tp": ({}, 2, PREDICTED),
    "layout.tensor": ({"layout.tp": 4, "model.heads": 4}, "2d", PREDICTED),
    "layout.depth": (
        {"layout.tp": 4, "layout.tensor": "2.5d", "model.heads": 4, "train.micro_batch": 4},
        4,
        PREDICTED,
    ),
    "layout.cp": ({}, 2, PREDICTED),
    "layout.context": ({"layout.cp": 2}, "ulysses", PREDICTED),
    "layout.pp": ({}, 2, PREDICTED),
    "layout.ep": ({"layout.dp": 2, "model.experts": {"count": 4}}, 2, PREDICTED),
    "layout.chunks": ({"layout.pp": 2, "model.layers": 4, "train.schedule": "interleaved"}, 2, PREDICTED),
    "layout.stages": ({"layout.pp": 2, "model.layers": 4}, [3, 1], PREDICTED),
}
"""For each setting: settings under which it has an effect, a non-default value, and where the change is visible."""

ELSEWHERE = {
    "data.source": "train/test_data.py",
    "data.path": "train/test_data.py",
    "data.tokenizer": "train/test_data.py",
    "data.dtype": "train/test_data.py",
    "data.samples": "parallel/test_sample_changes.py",
    "train.sparse_gradients": "parallel/row_cases.py",
    "train.transport": "comm/test_nccl_transport.py",
    "train.overlap": "parallel/cases.py",
    "train.checkpoint_every": "train/test_stop_and_resume.py",
    "train.vertical_sync": "parallel/stream_cases.py",
    "train.sync": "parallel/server_worker.py",
    "train.staleness": "parallel/server_worker.py",
    "train.slow_factor": "parallel/test_server.py",
    "train.slow_rank": "parallel/test_server.py",
    "train.trace": "features/trace/test_tracing.py",
    "train.keep_messages": "features/messages/test_message_samples.py",
    "train.codec_effects": "features/effects/test_codec_effects.py",
    "train.keep_messages.each": "features/messages/test_message_samples.py",
    "train.keep_messages.ranks": "features/messages/test_message_samples.py",
    "train.keep_messages.message_mb": "contract/test_message_files.py",
    "train.keep_messages.mb": "contract/test_message_files.py",
}
"""Settings whose effect requires several ranks or files, and the engine tests that verify the effect."""
LABELS = {"model.name"}
"""Settings that are only displayed."""

IDLE: list[tuple[str, dict[str, Any], str]] = [
    ("model.rotary_fraction", {"model.positions": "learned", "model.rotary_fraction": 0.5}, "set positions to rotary"),
    ("model.rotary_base", {"model.positions": "learned", "model.rotary_base": 100.0}, "set positions to rotary"),
    (
        "model.experts",
        {"model.experts": {"count": 4, "shared_width": 8}},
        "set shared to true, or leave shared_width out",
    ),
    (
        "model.experts.capacity",
        {"model.experts": {"count": 4, "drop": "none", "capacity": 3.0}},
        "set drop to position or probability",
    ),
    (
        "model.experts.min_capacity",
        {"model.experts": {"count": 4, "drop": "none", "min_capacity": 8}},
        "with `drop: none`, experts have no capacity",
    ),
    ("data", {"data.dtype": "int32"}, "dtype is for `source: numpy`"),
    ("data", {"data.path": "x.txt"}, "leave path out for `source: stdlib`"),
    (
        "train.comm_precision",
        {"train.comm_precision": "bf16"},
        "a run with one rank and zero 1 sends no messages with these",
    ),
    (
        "train.comm_precision",
        {"train.comm_precision": "megatron", "layout.tp": 2},
        "tp 2 and zero 1 sends no messages with these",
    ),
    (
        "train.comm_precision.activations",
        {"train.comm_precision": {"activations": "bf16"}, "layout.dp": 2},
        "sends no activations: leave this format out",
    ),
    (
        "train.comm_precision.gradients",
        {"train.comm_precision": {"gradients": "bf16"}, "layout.pp": 2},
        "sends no gradients",
    ),
    (
        "train.comm_precision.parameters",
        {"train.comm_precision": {"parameters": "bf16"}, "layout.dp": 2, "train.zero": 0},
        "zero 0 sends no parameters",
    ),
    ("train.sparse_gradients", {"train.sparse_gradients": "always"}, "no other replica to send rows to"),
    ("train.sparse_gradients", {"train.sparse_gradients": "auto", "layout.tp": 2}, "use more replicas"),
    ("train.overlap", {"train.overlap": False}, "a run with a single rank sends no gradients"),
    ("train.schedule", {"train.schedule": "gpipe", "train.micro_batch": 8}, "with one micro-batch per step"),
    ("train.vertical_sync", {"train.vertical_sync": True}, "1f1b keeps one version of the weights"),
    ("train.staleness", {"train.staleness": 2}, "sync all-reduce has no bound on staleness"),
    ("data.samples", {"data.samples": 10**6}, "lower samples, or leave it out"),
    ("train.slow_rank", {"train.slow_rank": 1, "layout.dp": 2}, "set slow_factor, or leave slow_rank out"),
    ("train.sequence_parallel", {"train.sequence_parallel": True}, "set layout.tp to 2 or more"),
    ("train", {"train.node_copy": True}, "node_copy is a second copy of the pieces of ZeRO stage 3"),
    ("train.node_copy", {"train.node_copy": True, "train.zero": 3}, "no other replica to gather weights from"),
    ("train.freeze_step", {"train.freeze_step": 2}, "set optimizer to onebit-adam here or in a scheme"),
    *(
        (
            f"train.{name}",
            {f"train.{name}": 8, "train.precision": precision},
            f"precision {precision} needs no loss scale",
        )
        for name in ("loss_scale_window", "loss_scale_hysteresis")
        for precision in ("fp64", "fp32", "bf16")
    ),
    ("train.loss_scale", {"train.loss_scale": 8.0}, "set precision to fp16"),
    (
        "train",
        {"train.prune": {"pattern": "rows", "begin": 4}},
        "prune has no effect: weights are first set to zero aft",
    ),
    (
        "train",
        {"train.prune": {"pattern": "rows", "begin": 3, "end": 4, "every": 1}},
        "but there are only 4 steps: lower prune.begin, end or every",
    ),
    (
        "train.prune.every",
        {"train.prune": {"pattern": "rows", "begin": 1, "end": 3, "every": 3}},
        "there are fewer than 3 updates from begin 1 to end 3",
    ),
    ("train.prune", {"train.prune": {"pattern": "rows", "every": 3}}, "every requires a growing sparsity"),
    ("train.keep_messages", {"train.keep_messages": {"steps": [2]}}, "a run with a single rank sends no messages"),
    (
        "train.codec_effects",
        {"train.codec_effects": {"steps": [2], "codecs": ["bf16"]}},
        "a run with a single rank sends no messages",
    ),
    ("layout.tensor", {"layout.tensor": "3d"}, "layout.tp 1 does not split layers"),
    ("layout.depth", {"layout.depth": 2, "layout.tp": 2}, "tensor 1d has no depth"),
    *(("layout.context", {"layout.context": way}, "set layout.cp to 2 or more") for way in ("rsa", "ulysses")),
    ("layout.chunks", {"layout.chunks": 2}, "one stage has nothing to interleave"),
    ("layout.stages", {"layout.stages": "auto"}, "with layout.pp 1 there is only one stage"),
    ("layout.ep", {"layout.ep": 2, "layout.dp": 2}, "the model has no experts"),
]
"""Refused field, settings under which the field is idle, and text of the reason or the remedy."""

MOOT_IN_A_CELL: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    ({"train.sequence_parallel": True}, {"layout.tp": [1, 2]}),
    ({}, {"layout.cp": [1, 2], "layout.context": ["ring", "ulysses"]}),
    ({"train.freeze_step": 2, "train.zero": 0, "train.clip": 0.0}, {"train.optimizer": ["adamw", "onebit-adam"]}),
    ({"train.loss_scale": 8.0}, {"train.precision": ["fp32", "fp16"]}),
    ({"train.slow_rank": 1, "layout.dp": 2}, {"train.slow_factor": [1.0, 3.0]}),
    ({"train.comm_precision": {"parameters": "bf16"}, "layout.dp": 2}, {"train.zero": [0, 1]}),
    ({}, {"layout.tp": [1, 4], "layout.tensor": ["1d", "2d"], "exclude": [{"layout.tp": 4, "layout.tensor": "1d"}]}),
    ({"train.overlap": False, "train.sparse_gradients": "always"}, {"layout.dp": [1, 2]}),
]
"""Settings that are idle only in some cells of a matrix."""


def written(directory: Path, settings: dict[str, Any]) -> Path:
    """Write a study file with these settings, given by dotted names, and return its path."""
    study: dict[str, Any] = {"schemes": {}}
    for name, value in sorted({**BASE, **settings}.items(), key=lambda item: item[0].count(".")):
        *sections, last = name.split(".") if not name.startswith("matrix") else ("matrix",)
        section = study
        for part in sections:
            section[part] = dict(section.get(part) or {})
            section = section[part]
        section[last] = value
    path = directory / "s.yaml"
    path.write_text(json.dumps(study, indent=1), encoding="utf-8")
    return path


def runs_of(directory: Path, settings: dict[str, Any], sets: list[str] | None = None) -> list[ExpandedRun]:
    return expand(load_study(written(directory, settings), sets), ROOM)


def optional_settings(schema: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the dotted names of all optional settings of a section and of its subsections."""
    section = find_section(schema, path)
    assert section is not None
    for name, field in section.model_fields.items():
        inner = find_section(schema, (*path, name))
        if not field.is_required():
            yield ".".join((*path, name))
        if inner is not None:
            yield from optional_settings(schema, (*path, name))


OPTIONAL = [name for part in ("model", "data", "train", "layout") for name in optional_settings(Study, (part,))]


def test_every_optional_setting_is_shown_to_change_something() -> None:
    """A new setting requires an entry in one of the tables above."""
    assert sorted(OPTIONAL) == sorted([*CHANGES, *ELSEWHERE, *LABELS])
    for name, file in ELSEWHERE.items():
        assert name.rpartition(".")[2] in (TESTS / file).read_text(encoding="utf-8"), f"{file} does not use {name}"


@cache
def corpus() -> Any:
    return text.load(contract.Data(), 16)


def resolved(run: ExpandedRun, directory: Path) -> contract.Run:
    content = run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=directory)
    return contract.Run.model_validate(content)


def log_of(run: contract.Run) -> list[Any]:
    """Return the contents of a one-rank run's log, without times."""
    torch.set_num_threads(1)  # more threads would only wait for each other
    stream = io.StringIO()
    loaded = corpus() if run.data == contract.Data() else text.load(run.data, run.train.seq_len)
    comm = MPI.COMM_SELF.Dup()
    trainer = trainer_of(run, comm, Progress(Wait.SPIN), loaded)
    ending = train(trainer, LogWriter(stream))
    trainer.mesh.free()  # a process can create about 2000 communicators
    comm.Free()
    records = [parse(line, i) for i, line in enumerate(stream.getvalue().splitlines(), 1)]
    lines = [
        (line.loss, line.lr, str(line.gradient_norm), line.loss_scale, line.skipped)  # the text of two NaNs is equal
        for line in records
        if isinstance(line, Step)
    ]
    events = [event for event in records if isinstance(event, Event)]
    losses = [(event.loss, event.tokens) for event in events if isinstance(event, Evaluation)]
    raw_events = [event.raw for event in events if event.name in ("experts", "sparsity", "variance_frozen")]
    windows = [event.raw.get("from_step") for event in events]
    return [ending, lines, losses, raw_events, windows]


def prediction_of(run: contract.Run) -> Any:
    machine = make_gpu_machine("A100", node_gbit=100)
    assert machine is not None
    (prediction,) = predict("", [("x", make_workload(run, ranks_per_node=4))], machine, baseline="x")
    return prediction.to_json(peak=1e12)


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_changes_the_run(tmp_path: Path, name: str) -> None:
    others, value, how = CHANGES[name]
    if name == "layout.chunks":  # chunks need an interleaved schedule
        before = resolved(runs_of(tmp_path, {**others, "train.schedule": "1f1b"})[0], tmp_path)
    else:
        before = resolved(runs_of(tmp_path, others)[0], tmp_path)
    after = resolved(runs_of(tmp_path, {**others, name: value})[0], tmp_path)
    observe = log_of if how == TRAINS else prediction_of
    assert observe(before) == observe(before) != observe(after), "deterministic, and different with the setting"


@pytest.mark.parametrize(("field", "settings", "expected"), IDLE, ids=lambda value: str(value)[:60])
def test_a_setting_that_changes_nothing_is_refused_by_name(
    tmp_path: Path, field: str, settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UserError) as caught:
        runs_of(tmp_path, settings)
    (line,) = str(caught.value).splitlines()
    place, _, message = line.partition(": ")
    assert place.startswith(f"{tmp_path}/s.yaml:") and message.startswith(f"{field}: ") and expected in message, line
    number = int(place.rpartition(":")[2])
    shown = (tmp_path / "s.yaml").read_text(encoding="utf-8").splitlines()[number - 1]
    assert f'"{field.rpartition(".")[2]}"' in shown, "the line of the setting"


@pytest.mark.parametrize(("settings", "matrix"), MOOT_IN_A_CELL, ids=str)
def test_a_matrix_may_make_a_setting_idle_in_some_cells(
    tmp_path: Path, settings: dict[str, Any], matrix: dict[str, list[Any]]
) -> None:
    assert runs_of(tmp_path, {**settings, "matrix": matrix})


def test_a_value_that_is_idle_in_all_of_its_cells_is_refused_at_the_value(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"layout\.context: changes nothing in any run: layout\.cp 1 does not split positions"
    ):
        runs_of(tmp_path, {"matrix": {"layout.context": ["ring", "rsa"]}})
    with pytest.raises(UserError, match=r"^--set train\.slow_rank=1: train\.slow_rank: changes nothing in any run"):
        runs_of(tmp_path, {}, ["train.slow_rank=1"])


def test_a_setting_of_a_preset_is_not_refused_as_idle(tmp_path: Path) -> None:
    """The preset gpt-tiny rotates a quarter of each head, but the study only requests learned positions."""
    path = written(tmp_path, {})
    study = json.loads(path.read_text()) | {"model": {"preset": "gpt-tiny", "positions": "learned"}}
    path.write_text(json.dumps(study), encoding="utf-8")
    assert expand(load_study(path), ROOM)


@pytest.mark.parametrize(("option", "key"), [("scheme=x", "scheme"), ("train.steps=9", "train.steps")])
def test_a_value_that_the_matrix_overrides_is_refused(tmp_path: Path, option: str, key: str) -> None:
    matrix = {"scheme": ["baseline", "identity"], "train.steps": [4, 5]}
    with pytest.raises(
        UserError, match=f"^--set {option}: {key}: the matrix varies this field, .* set matrix.{key} instead$"
    ):
        runs_of(tmp_path, {"matrix": matrix}, [option])
    assert runs_of(tmp_path, {"matrix": matrix}, ["matrix.scheme=[baseline]"])
    with pytest.raises(UserError, match=r"s\.yaml:[0-9]+: scheme: the matrix varies this field"):
        runs_of(tmp_path, {"matrix": matrix, "scheme": "identity"})


def test_a_program_uses_all_that_its_study_gives_it(tmp_path: Path) -> None:
    program = {"command": "python x.py", "log": "nanogpt", "steps": 4}
    for changed, message in (
        ({"seed": 7}, "program.seed: is not used: write {seed} in command or env, or remove it"),
        ({"values": {"batch": 2}}, "program: values.batch is not used: write {batch} in command or env, or remove it"),
        (
            {"log": {"line": "(?P<step>[0-9]+) (?P<loss>.*)", "every": 5}},
            "every is only for a line without the group step",
        ),
    ):
        path = tmp_path / "p.yaml"
        path.write_text(json.dumps({"study": "p", "program": {**program, **changed}}), encoding="utf-8")
        with pytest.raises(UserError) as caught:
            load_study(path)
        assert message in str(caught.value)
    used = {"seed": 7, "values": {"batch": 2}, "env": {"BATCH": "{batch}"}, "command": "python x.py {seed}"}
    path.write_text(json.dumps({"study": "p", "program": {**program, **used}}), encoding="utf-8")
    assert load_study(path)


def test_a_program_that_takes_no_seed_may_be_repeated(tmp_path: Path) -> None:
    """The seeds in the run files distinguish the repeats."""
    path = tmp_path / "p.yaml"
    program = {"command": "python x.py", "log": "nanogpt", "steps": 4}
    path.write_text(json.dumps({"study": "p", "program": program, "scheme": "baseline", "repeats": 2}), "utf-8")
    assert [Program.model_validate({**program, "seed": seed}).seed for seed in (1, 2)] == [1, 2]
    assert [run.repeat for run in expand(load_study(path), ROOM)] == [1, 2]


@pytest.mark.parametrize("sparsity", [0.05, 0.9, 0.99])
def test_large_matrices_take_any_sparsity(tmp_path: Path, sparsity: float) -> None:
    assert runs_of(tmp_path, {"train.prune": {"pattern": "unstructured", "sparsity": sparsity}})
