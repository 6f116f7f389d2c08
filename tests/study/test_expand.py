"""Tests of study expansion, compared with a brute-force oracle, and of the resolved run sizes."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.contract.run import RankShape, load
from hpcbench.contract.training import CONTENTS
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity

BASE: dict[str, Any] = {
    "study": "s",
    "model": "gpt-tiny",
    "train": {"steps": 20, "global_batch": 64, "lr": 1e-3},
    "matrix": {"scheme": ["baseline", "mzhybrid"]},
    "repeats": 1,
}
LOCAL = Capacity("local", None, 2)
GPUS = Capacity("lassen", 4, 4)


def runs_of(directory: Path, capacity: Capacity = LOCAL, **changes: Any) -> list[ExpandedRun]:
    path = directory / "s.yaml"
    path.write_text(json.dumps({**BASE, **changes}), encoding="utf-8")  # JSON is YAML 1.2, and keeps the keys' order
    return expand(load_study(path), capacity)


VALUES: dict[str, list[Any]] = {
    "train.micro_batch": [1, 2, 4],
    "train.lr": [1e-3, 2e-3, 3e-3],
    "train.seed": [1, 2, 3],
    "train.zero": [0, 1],
    "train.beta1": [0.5, 0.9],
    "data.valid_fraction": [0.1, 0.2],
}


@st.composite
def matrices(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a matrix of up to four keys, some zipped, with exclusions that keep the baseline in every cell."""
    keys = draw(st.permutations(list(VALUES)))[: draw(st.integers(1, 4))]
    number = draw(st.integers(0, len(keys))) if len(keys) > 1 else 0
    zipped, single = keys[:number], keys[number:]
    length = draw(st.integers(1, 2))
    entries: list[tuple[str, Any]] = [
        (key, draw(st.lists(st.sampled_from(VALUES[key]), min_size=1, unique=True))) for key in single
    ]
    entries.append(("scheme", draw(st.permutations(["baseline", "mzhybrid", "naive-mpc"]))))
    if len(zipped) > 1:
        entries.append(("zip", {key: VALUES[key][:length] for key in zipped}))
    entries = draw(st.permutations(entries))
    holes = []
    for key, values in entries:
        if key not in ("zip", "scheme") and len(values) > 1 and draw(st.booleans()):
            holes.append({key: draw(st.sampled_from(values)), "scheme": "naive-mpc"})
    return {**dict(entries), **({"exclude": holes} if holes else {})}


def oracle(matrix: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells by brute force: all assignments whose zipped values form a row and that no exclusion matches."""
    lists: dict[str, list[Any]] = {}
    rows: list[tuple[Any, ...]] | None = None
    for key, values in matrix.items():
        if key == "zip":
            lists.update(values)
            rows = list(zip(*values.values(), strict=True))
        elif key != "exclude":
            lists[key] = values
    names = []
    for values in itertools.product(*lists.values()):
        cell = dict(zip(lists, values, strict=True))
        if rows is not None and tuple(cell[key] for key in matrix["zip"]) not in rows:
            continue
        if any(all(cell[key] == value for key, value in hole.items()) for hole in matrix.get("exclude", [])):
            continue
        names.append(cell)
    return names


@settings(max_examples=150, deadline=None)
@given(matrix=matrices())
def test_cells_are_those_of_the_oracle_in_file_order(
    matrix: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = runs_of(tmp_path_factory.mktemp("m"), matrix=matrix)
    cells = [{**run.cell, "scheme": run.scheme_name} for run in runs]
    expected = oracle(matrix)
    by_cell: dict[str, list[dict[str, Any]]] = {}
    for cell in expected:  # schemes are grouped by cell, cells in the order of their first appearance
        by_cell.setdefault(json.dumps({k: v for k, v in cell.items() if k != "scheme"}), []).append(cell)
    assert cells == [cell for group in by_cell.values() for cell in group]
    assert len({run.id for run in runs}) == len(runs)
    for run in runs:
        for key, value in run.cell.items():
            section, _, field = key.partition(".")
            assert getattr(getattr(run.study, section), field) == value


def test_repeats_rotate_the_schemes_and_move_the_seed(tmp_path: Path) -> None:
    schemes = ["baseline", "identity", "naive-mpc"]
    runs = runs_of(tmp_path, matrix={"scheme": schemes}, repeats=4)
    orders = [[run.scheme_name for run in runs if run.repeat == k] for k in range(1, 5)]
    assert orders == [schemes, schemes[1:] + schemes[:1], schemes[2:] + schemes[:2], schemes]
    seeds = {(run.repeat, file(run)["train"]["seed"]) for run in runs}
    assert seeds == {(1, 1234), (2, 1235), (3, 1236), (4, 1237)}
    assert {run.pairing for run in runs} == {"r1", "r2", "r3", "r4"}


def file(run: ExpandedRun) -> dict[str, Any]:
    return run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=Path("/base"))


def test_the_run_file_has_every_key_and_its_type(tmp_path: Path) -> None:
    runs = runs_of(
        tmp_path, data={"source": "file", "path": "a b.txt"}, layout={"dp": 2}, matrix={"scheme": ["baseline"]}
    )
    data = file(runs[0])
    assert data["data"] == {
        "source": "file",
        "path": "/base/a b.txt",
        "valid_fraction": 0.1,
        "tokenizer": None,
        "dtype": None,
        "samples": None,
    }
    assert data["train"] == {
        "sparse_gradients": "never",
        "prune": None,
        "trace": None,
        "keep_messages": None,
        "codec_effects": None,
        "vertical_sync": False,
        "sync": "all-reduce",
        "staleness": 0,
        "slow_rank": 0,
        "slow_factor": 1.0,
        "steps": 20,
        "warmup_steps": 10,
        "global_batch": 64,
        "micro_batch": 1,
        "seq_len": 2048,
        "precision": "fp32",
        "comm_precision": dict.fromkeys(("activations", "gradients", "parameters"), "auto"),
        "zero": 1,
        "seed": 1234,
        "lr": 1e-3,
        "min_lr": 1e-4,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "clip": 1.0,
        "bucket_mb": 4.0,
        "overlap": True,
        "eval_every": 0,
        "eval_samples": 32,
        "checkpoint_every": 0,
        "schedule": "1f1b",
        "recompute": "none",
        "sequence_parallel": False,
        "transport": "mpi",
        "offload": False,
        "node_copy": False,
        "optimizer": "adamw",
        "freeze_step": None,
        "loss_scale": 4096.0,
        "loss_scale_window": 1000,
        "loss_scale_hysteresis": 2,
    }
    assert data["scheme"] == {
        "name": "baseline",
        "algorithm": "native",
        "default": "none",
        "rules": [],
        "environment": {},
        "arguments": "",
        "preload": None,
        "setup": [],
        "optimizer": None,
    }
    layout = {
        "dp": 2,
        "tp": 1,
        "tensor": "1d",
        "depth": 1,
        "cp": 1,
        "context": "ring",
        "pp": 1,
        "ep": 1,
        "chunks": 1,
        "stages": [],
    }
    assert (data["layout"], data["ranks"]) == (layout, 2)
    keys = (
        "schema study site run repeat pairing cell model data train layout scheme ranks threads oversubscribe device "
        "links shape peak_tflops gpu_aware_mpi"
    )
    assert " ".join(data) == keys
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert load(path)[0].run == "r1-baseline"  # the worker refuses missing, unknown and mistyped keys
    assert data["shape"] is None
    asked = RankShape(nodes=1, ranks_per_node=2, cores_per_rank=4, gpus_per_rank="1/2", visibility="all")
    contents = run_file(
        runs[0],
        site="local",
        threads=1,
        oversubscribe=True,
        device="cpu",
        base=Path("/base"),
        shape=asked,
        gpu_aware_mpi=False,
    )
    assert contents["gpu_aware_mpi"] is False
    path.write_text(json.dumps(contents), encoding="utf-8")
    assert load(path)[0].shape == asked


def test_a_seed_that_grows_too_large_with_the_repeats_is_refused_by_its_line(tmp_path: Path) -> None:
    train = {"steps": 20, "global_batch": 64, "seed": 2**31 - 1}
    first, *others = runs_of(tmp_path, train=train, matrix={"scheme": ["baseline"]}, repeats=2)
    assert file(first)["train"]["seed"] == 2**31 - 1
    with pytest.raises(UserError, match=rf"^{tmp_path}/s\.yaml:\d+: train\.seed: must be below {2**31}, not {2**31}$"):
        file(others[0])


def test_whole_numbers_for_fractions_reach_the_run_as_fractions(tmp_path: Path) -> None:
    runs = runs_of(
        tmp_path, train={"steps": 20, "global_batch": 64, "clip": 0, "weight_decay": 0, "lr": 1, "bucket_mb": 1}
    )
    train = file(runs[0])["train"]
    assert [type(train[key]) for key in ("clip", "weight_decay", "lr", "min_lr", "bucket_mb")] == [float] * 5


@pytest.mark.parametrize(
    ("capacity", "changes", "size"),
    [
        (LOCAL, {"layout": {"dp": 2, "tp": 2, "pp": 2}}, (1, 8, 2)),
        (LOCAL, {"layout": {"dp": 2, "tp": 2, "pp": 2}, "nodes": 4}, (4, 2, 2)),
        (LOCAL, {}, (1, 2, 2)),  # dp from the slots
        (LOCAL, {"layout": {"tp": 4}}, (1, 4, 1)),  # more than the slots: dp 1, ranks share cores
        (LOCAL, {"nodes": 2, "ranks_per_node": 4}, (2, 4, 8)),
        (Capacity("x", None, 7), {"layout": {"tp": 2}, "train": {"steps": 20, "global_batch": 63}}, (1, 6, 3)),
        (GPUS, {"layout": {"tp": 4, "pp": 2}, "nodes": 4}, (4, 4, 2)),
        (GPUS, {"layout": {"tp": 4, "pp": 2, "dp": 2}}, (4, 4, 2)),
        (GPUS, {"layout": {"dp": 2}}, (1, 2, 2)),  # less than a node
        (GPUS, {}, (1, 4, 4)),
        (GPUS, {"nodes": 2, "ranks_per_node": 2}, (2, 2, 4)),
    ],
)
def test_sizes_follow_from_layout_nodes_and_room(
    tmp_path: Path, capacity: Capacity, changes: dict[str, Any], size: tuple[int, int, int]
) -> None:
    resolved = runs_of(tmp_path, capacity, **changes)[0].size
    assert (resolved.nodes, resolved.ranks_per_node, resolved.layout.dp) == size
    assert resolved.nodes * resolved.ranks_per_node == resolved.layout.ranks


@pytest.mark.parametrize(
    ("capacity", "changes", "says"),
    [
        (GPUS, {"layout": {"tp": 4, "pp": 4}, "nodes": 6}, "6 nodes x 4 ranks = 24 ranks, not a multiple of tp x pp"),
        (GPUS, {"layout": {"dp": 2, "tp": 4}, "nodes": 3}, "3 nodes x 4 ranks per node = 12 on lassen"),
        (GPUS, {"layout": {"dp": 3, "tp": 2}}, "2 nodes x 4 ranks per node = 8"),
        (GPUS, {"layout": {"dp": 4}, "ranks_per_node": 3}, "2 nodes x 3 ranks per node = 6"),
        (LOCAL, {"layout": {"dp": 4}, "nodes": 3}, "nodes: 3 does not divide"),
        (GPUS, {"layout": {"tp": 4}, "nodes": 1, "ranks_per_node": 2}, "2 ranks, not a multiple of tp x pp"),
        (LOCAL, {"layout": {"dp": 1, "chunks": 2}}, "layout.chunks: 2 chunks, but layout.pp is 1"),
        (LOCAL, {"layout": {"pp": 2, "chunks": 200}}, "layout.chunks: pp x chunks = 2 x 200 = 400 parts are more than"),
        (LOCAL, {"layout": {"pp": 2, "stages": [1, 2, 3]}}, "layout.stages: [1, 2, 3] lists 3 parts with 6 layers"),
        (
            LOCAL,
            {"layout": {"pp": 2, "chunks": 2}},
            "train.schedule: 1f1b with layout.chunks 2: interleaved needs 2 chunks",
        ),
        (LOCAL, {"train": {"steps": 20, "global_batch": 64, "schedule": "interleaved"}}, "with layout.chunks 1"),
        (
            LOCAL,
            {
                "layout": {"dp": 1, "pp": 2, "chunks": 2},
                "train": {"steps": 20, "global_batch": 63, "schedule": "interleaved"},
            },
            "63 is not a multiple of micro_batch x dp x pp = 1 x 1 x 2 = 2, as schedule interleaved needs: use 64",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, capacity: Capacity, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        runs_of(tmp_path, capacity, **changes)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 's.yaml'}")


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        ({"scheme": ["baseline"], "exclude": [{"scheme": "baseline"}]}, "leaves no cell"),
        ({"scheme": ["baseline"], "exclude": [{"scheme": "other"}]}, "matches no cell"),
        ({"scheme": ["baseline"], "exclude": [{"nodes": 1}]}, "'nodes' is not a key of the matrix"),
        ({"scheme": ["baseline"], "exclude": [{}]}, "matches no cell"),
        (
            {"scheme": ["baseline"], "zip": {"nodes": [1, 2], "train.micro_batch": [1]}},
            "nodes has 2, train.micro_batch has 1",
        ),
        ({"scheme": ["baseline"], "zip": [{}]}, "a group has no key: add a key"),
        ({"scheme": ["baseline"], "zip": {"nodes": []}}, "no value"),
        ({"scheme": ["baseline"], "zip": {"scheme": ["baseline"]}}, "is listed twice"),
        ({"scheme": ["baseline"], "zip": {"nodes": [1, 1]}}, "a row is repeated"),
        (
            {"scheme": ["baseline"], "train.steps": list(range(20, 120)), "train.seed": list(range(2000))},
            "200000 cells",
        ),
    ],
)
def test_matrices_that_make_no_sense_are_refused(tmp_path: Path, matrix: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        runs_of(tmp_path, matrix=matrix)
    assert says in str(caught.value)


def test_booleans_are_not_numbers_in_exclusions(tmp_path: Path) -> None:
    matrix = {"scheme": ["baseline"], "train.zero": [0, 1], "exclude": [{"train.zero": True}]}
    with pytest.raises(UserError, match="matches no cell"):
        runs_of(tmp_path, matrix=matrix)


def test_run_ids_are_valid_names_for_all_values(tmp_path: Path) -> None:
    labels = ["a b", "a/b", "a_b", "$(touch pwned)", "..", "x" * 300, "x" * 301]
    matrix = {"scheme": ["baseline"], "data.path": labels}
    runs = runs_of(tmp_path, data={"source": "file", "path": "x"}, matrix=matrix)
    assert len({run.id for run in runs}) == len(labels)
    for run in runs:
        assert all(c.isascii() and (c.isalnum() or c in "._-") for c in run.id) and len(run.id) < 200
        assert ".." not in run.id


def test_a_model_and_its_parts_may_vary_together(tmp_path: Path) -> None:
    matrix = {"scheme": ["baseline"], "model.layers": [2, 3], "model": ["gpt-tiny", "gpt2-small"]}
    ids = {
        (run.study.model.name, run.study.model.layers, run.study.model.hidden)
        for run in runs_of(tmp_path, matrix=matrix)
    }
    assert ids == {("gpt-tiny", 2, 128), ("gpt-tiny", 3, 128), ("gpt2-small", 2, 768), ("gpt2-small", 3, 768)}


def test_the_neox_study_scales_by_data_parallelism() -> None:
    from hpcbench.resources import data_dir

    runs = expand(load_study(data_dir("studies") / "neox-hybrid.yaml"), GPUS)
    assert len(runs) == 3 * 7 * 3
    assert {(run.cell["nodes"], run.size.layout.dp, run.size.layout.ranks) for run in runs} == {
        (12, 2, 48),
        (24, 4, 96),
        (48, 8, 192),
    }


def test_a_scheme_may_name_the_optimizer(tmp_path: Path) -> None:
    train = {"steps": 40, "warmup_steps": 4, "global_batch": 64, "zero": 0, "clip": 0}
    runs = runs_of(tmp_path, train=train, matrix={"scheme": ["baseline", "onebit-adam"]}, repeats=1)
    chosen = [(file(run)["train"]["optimizer"], file(run)["train"]["freeze_step"]) for run in runs]
    assert chosen == [("adamw", None), ("onebit-adam", 8)]
    assert file(runs[1])["scheme"]["optimizer"] == "onebit-adam"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(file(runs[1])), encoding="utf-8")
    assert load(path)[0].train.freeze_step == 8
    late = {**train, "warmup_steps": 30}
    runs = runs_of(tmp_path, train=late, matrix={"scheme": ["baseline", "onebit-adam"]}, repeats=1)
    assert file(runs[1])["train"]["freeze_step"] == 30


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"zero": 1}, "train.zero: 1-bit Adam averages whole momenta, but ZeRO stage 1 shards them: set zero to 0"),
        ({"zero": 0, "freeze_step": 40}, "train.freeze_step: a variance that is frozen after 40 updates leaves none"),
        ({"zero": 0}, "train.clip: clipping needs the norm of the mean gradient, which no rank has"),
        ({"zero": 0, "clip": 0.5}, "averages momenta: set clip to 0 for all schemes that are compared, or train with"),
    ],
)
def test_an_optimizer_that_cannot_work_so_is_refused_by_field_and_remedy(tmp_path: Path, train, message) -> None:
    with pytest.raises(UserError) as caught:
        runs_of(
            tmp_path,
            train={"steps": 40, "warmup_steps": 4, "global_batch": 64, **train},
            matrix={"scheme": ["baseline", "onebit-adam"]},
        )
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("precision", "formats"),
    [
        ("auto", ("auto", "auto", "auto")),
        ("bf16", ("bf16", "bf16", "bf16")),
        ("megatron", ("auto", "fp32", "auto")),
        ({"gradients": "fp32"}, ("auto", "fp32", "auto")),
        ({"activations": "fp16", "parameters": "bf16"}, ("fp16", "auto", "bf16")),
    ],
)
def test_the_precision_of_messages_is_one_value_or_one_per_content(tmp_path: Path, precision, formats) -> None:
    train = {"steps": 20, "global_batch": 64, "precision": "bf16", "comm_precision": precision}
    run, *_ = runs_of(tmp_path, train=train, layout={"dp": 2, "tp": 2})
    assert run.study.train.comm_precision.model_dump() == dict(zip(CONTENTS, formats, strict=True))


@pytest.mark.parametrize("precision", ["fp8", {"gradients": "fp8"}, {"weights": "fp32"}])
def test_a_precision_of_messages_that_does_not_exist_is_refused_by_line_and_field(tmp_path: Path, precision) -> None:
    with pytest.raises(UserError) as caught:
        runs_of(tmp_path, train={"steps": 20, "global_batch": 64, "comm_precision": precision})
    message = str(caught.value)
    assert "\n" not in message and ".yaml:" in message and "comm_precision" in message
    assert "fp32" in message or "gradients" in message, message


def test_the_nodes_of_a_site_are_checked_before_divisibility(tmp_path: Path) -> None:
    small = Capacity("small", 2, 2, most_nodes=(3, "queue q of small allows at most 3"))
    with pytest.raises(UserError, match="nodes: 30: queue q of small allows at most 3: use at most 3"):
        runs_of(tmp_path, small, nodes=30)


def test_the_message_about_a_derived_dp_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dp = 7 follows from 1 x 7 ranks, with the default ranks per node of odd"):
        runs_of(tmp_path, Capacity("odd", 7, 7))
