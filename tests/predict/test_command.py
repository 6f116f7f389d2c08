"""Tests of the commands `hpcbench predict` and `hpcbench bench gemm`."""

import csv
import itertools
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.plot_style import styled
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.break_even import BreakEven
from hpcbench.predict.command import predict_study
from hpcbench.predict.memory_check import check_memory
from hpcbench.predict.parameter_server import predict_step_time
from hpcbench.predict.plots import draw_figures
from hpcbench.predict.prediction_file import NAME
from hpcbench.predict.program import load_program, read_table
from hpcbench.predict.results import describe_break_even, predict_and_show
from hpcbench.predict.store import store_prediction
from hpcbench.present.figures import drawn
from hpcbench.report.predictions import read_predictions
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study

STUDY = """\
study: small
site: {site}
model: {model}
train: {{steps: 20, warmup_steps: 2, global_batch: 8, micro_batch: 1, seq_len: 512, precision: {precision}, zero: 1}}
layout: {{dp: 4, tp: 2}}
ranks_per_node: 4
matrix: {{scheme: [baseline, naive-int8]}}
repeats: 2
"""


def study(directory: Path, site: str = "perlmutter", model: str = "gpt2-small", precision: str = "bf16") -> Path:
    path = directory / "small.yaml"
    path.write_text(STUDY.format(site=site, model=model, precision=precision))
    return path


def expanded(path: Path, name: str = "perlmutter") -> tuple[list[ExpandedRun], Site, Path]:
    """Return the runs of a study file, its site, and the base directory of relative paths."""
    site, _ = load_site(name)
    return expand(load_study(path), site.capacity, offer(site)), site, path.parent


def predicted(path: Path, **options: object) -> dict[str, object]:
    """Return the document that the command writes."""
    settings: dict[str, object] = {"site": None, "measured": None, "ranks": (), "sets": (), "plots": None, **options}
    output = path.with_suffix(".json")
    assert predict_and_show(path, format="json", output=output, **settings) == 0  # type: ignore[arg-type]
    result: dict[str, object] = json.loads(output.read_text())
    return result


def test_each_scheme_is_predicted_once_with_an_interval_and_its_basis(tmp_path: Path) -> None:
    document = predicted(study(tmp_path), ranks=(8, 16))
    runs = document["predictions"]
    assert isinstance(runs, list)
    assert [(run["scheme"], run["ranks"]) for run in runs] == [
        ("baseline", 8),
        ("naive-int8", 8),
        ("baseline", 16),
        ("naive-int8", 16),
    ]
    for run in runs:
        seconds = run["step_seconds"]
        assert 0 < seconds["low"] < seconds["value"] < seconds["high"] and seconds["basis"] in list(InputBasis)
        assert sum(run["parts"].values()) == pytest.approx(seconds["value"], rel=0.02)
        assert run["memory"]["fits"] is True and len(run["memory"]["peaks"]) == 3
    assert runs[0]["against_baseline"] is None and runs[1]["against_baseline"]["words"]
    plain, coded = (run["channels"]["DP BACKWARD GRAD"] for run in runs[:2])
    assert plain["message_bytes"] == coded["message_bytes"] == plain["wire_bytes"]
    # the plan is hierarchical: uncompressed values within nodes, a byte and its share of a scale between nodes
    assert coded["wire_bytes"] < plain["wire_bytes"]
    assert 0 < coded["network_bytes"] < 0.55 * plain["network_bytes"]


@pytest.mark.parametrize("format", ["md", "html"])
def test_pages_say_what_the_tables_say(tmp_path: Path, format: str) -> None:
    path, output = study(tmp_path), tmp_path / f"page.{format}"
    predict_and_show(path, site=None, measured=None, ranks=(), sets=(), format=format, output=output, plots=None)
    text = output.read_text()
    assert "naive-int8" in text and "Memory of the rank that needs the most" in text and "measured elsewhere" in text
    assert text.count("<svg") == (5 if format == "html" else 0)


@pytest.mark.parametrize(
    ("name", "start"), [("p.html", "<!doctype html>"), ("p.JSON", "{"), ("p.md", "**small on perlmutter, predicted**")]
)
def test_the_suffix_of_the_output_is_its_format(tmp_path: Path, name: str, start: str) -> None:
    options: dict[str, object] = {"site": None, "measured": None, "ranks": (), "sets": (), "plots": None}
    predict_and_show(study(tmp_path), format=None, output=tmp_path / name, **options)  # type: ignore[arg-type]
    assert (tmp_path / name).read_text().startswith(start)
    with pytest.raises(UserError, match=r"--output \S*p\.pdf: \.pdf is not the suffix of a format: use \.txt, \.md"):
        predict_and_show(study(tmp_path), format=None, output=tmp_path / "p.pdf", **options)  # type: ignore[arg-type]


def test_csv_has_the_figures_of_the_json(tmp_path: Path) -> None:
    path = study(tmp_path)
    (first, *_) = predicted(path)["predictions"]  # type: ignore[misc, attr-defined]
    (row, *others) = csv.DictReader(printed(path, "csv").splitlines())
    assert len(others) == 1 and row["scheme"] == "baseline"
    assert float(row["step_seconds.low"]) == first["step_seconds"]["low"]
    assert float(row["channels.DP BACKWARD GRAD.wire_bytes"]) == first["channels"]["DP BACKWARD GRAD"]["wire_bytes"]


@pytest.mark.parametrize(("model", "unit"), [("gpt-tiny", "MB"), ("megatron-18.4b", "GB")])
def test_bytes_have_the_unit_that_fits_them(tmp_path: Path, model: str, unit: str) -> None:
    """A table in gigabytes must not show a few bytes as 0.00."""
    text = printed(study(tmp_path, model=model), sets=["train.seq_len=64"])
    memory, traffic = text.partition("**Memory")[2].split("**Bytes that a rank sends")
    assert re.search(rf"\| [0-9.]+ {unit} \|", memory)
    assert re.search(r"EXACT STEP OPTIM +\| [0-9.]+ k?B \|", traffic)
    cells = [
        cell.strip() for line in (memory + traffic).splitlines() if line.startswith("| ") for cell in line.split("|")
    ]
    sizes = [cell for cell in cells if re.match(r"[0-9]", cell)]
    assert len(sizes) > 40 and all(re.fullmatch(r"0|[1-9][0-9.]* [kMG]?B", size) for size in sizes), sizes


def against(gain: float, bandwidth: float) -> BreakEven:
    return BreakEven(bandwidth, gain, True, "")


def test_a_break_even_that_is_no_number_says_what_holds_at_which_bandwidth() -> None:
    assert describe_break_even(against(-0.1, 1.25e9)) == "10"
    assert describe_break_even(against(0.1, math.inf)) == "none: faster at any bandwidth"
    assert describe_break_even(against(-0.1, 0.0)) == "none: slower at any bandwidth"
    assert describe_break_even(against(0.004, 0.0)) == "none: saves no bytes between nodes"
    assert describe_break_even(against(0.0, 0.0)) == describe_break_even(against(0.0, math.inf))


@pytest.mark.parametrize("scale", [1, 4096])
def test_numbers_of_an_axis_do_not_cover_each_other(tmp_path: Path, scale: int) -> None:
    """Small and large steps: microseconds to minutes, 2 thousand to 67 million tokens."""
    path = study(tmp_path, model="gpt-tiny")
    sets = [f"train.global_batch={8 * scale}"]
    result, about, machine = predict_study(path, site=None, measured=None, ranks=(), sets=sets)
    predicted_figures = draw_figures(result, about, machine)
    assert len(predicted_figures) == 5
    for figure in predicted_figures:
        with styled():
            boxes = measure(drawn(figure))
        assert len(boxes) > 4
        for (item, a), (other, b) in itertools.combinations(boxes, 2):
            overlap = min(min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0))
            assert overlap <= 1, f"{figure.name}: {item!r} covers {other!r}"


def measure(figure: Any) -> list[tuple[str, Any]]:
    """Return each numeric axis label with its bounding box in pixels, including a margin as wide as a space."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [label for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()]
    boxes = [(label.get_text(), label.get_window_extent(renderer)) for label in labels if label.get_text()]
    return [(text, box.padded(1)) for text, box in boxes]


CLUSTER = """\
site: mine
scheduler: {kind: slurm}
node: {cores: 8}
launcher: {kind: srun}
device: cpu
checked: never
"""
LINKS = {"latency_s": 1e-4, "bytes_per_s": 1e7}


def cluster(directory: Path, more: str = "") -> Path:
    """Write a study of two nodes on a cluster whose site file does not state the network bandwidth."""
    (directory / "mine.yaml").write_text(CLUSTER + more)
    path = directory / "small.yaml"
    text = STUDY.format(site=directory / "mine.yaml", model="gpt2-small", precision="fp32")
    path.write_text(text.replace("dp: 4, tp: 2", "dp: 2").replace("ranks_per_node: 4", "nodes: 2\nranks_per_node: 1"))
    return path


def printed(path: Path, format: str = "md", **options: object) -> str:
    output = path.with_suffix(f".{format}")
    settings: dict[str, object] = {"site": None, "measured": None, "ranks": (), "sets": (), "plots": None, **options}
    predict_and_show(path, format=format, output=output, **settings)  # type: ignore[arg-type]
    return output.read_text().replace("\\", "")


def test_an_assumed_network_has_no_winner(tmp_path: Path) -> None:
    """The study has a break-even bandwidth as soon as the bandwidth is stated or measured."""
    path = cluster(tmp_path)
    text = printed(path)
    assert "naive-int8: unknown: run `hpcbench bench network` (100 Gbit/s per node between nodes is assumed)." in text
    assert re.search(r"\| naive-int8 .*\| unknown \| unknown \|", text)
    assert not re.search(r"loses|wins|pays", text)
    assert printed(path, "html").count("<svg") == 2, "curves of the gain would rest on nothing"
    (document,) = [run["against_baseline"] for run in predicted(path)["predictions"] if run["against_baseline"]]  # type: ignore[attr-defined]
    assert document["gain"] is None and document["bytes_per_s"] is None
    stated = cluster(tmp_path, "network: {description: slow, bandwidth_gbit: 0.1}\n")
    assert "naive-int8: wins by" in printed(stated) and "0.1 Gbit/s per node between nodes (data sheet)" in printed(
        stated
    )
    tables = tmp_path / "measured"
    tables.mkdir()
    network = {"schema": 1, "within": None, "between": LINKS, "native": [], "codecs": {}}
    (tables / "network.json").write_text(json.dumps(network))
    assert "naive-int8: wins by" in printed(cluster(tmp_path), measured=tables)


def test_links_within_a_node_that_nobody_measured_have_no_winner(tmp_path: Path) -> None:
    path = cluster(tmp_path)
    path.write_text(path.read_text().replace("nodes: 2\nranks_per_node: 1", "ranks_per_node: 2"))
    assert re.search(r"naive-int8: unknown: run .* \([0-9.]+ GB/s per rank within nodes is assumed\)\.", printed(path))


@pytest.mark.parametrize(("more", "least"), [("", 0.0), ("oversubscribe: true\n", 0.16)])
def test_an_interval_is_wide_where_ranks_may_share_cores(tmp_path: Path, more: str, least: float) -> None:
    """If all inputs are measured, only predictions for shared cores have an additional error."""
    runs, _, machine = predict_study(cluster(tmp_path, more), site=None, measured=None, ranks=(), sets=())
    here = InputBasis.HERE
    fabric = replace(machine.fabric, between_basis=here, within_basis=here)
    reference = replace(machine, work_basis=here, fabric=fabric)
    figure = predict_step_time(runs[0].workload, reference).seconds
    width = figure.high / figure.value - 1
    assert least < width < least + 0.061


def test_what_was_measured_here_takes_the_place_of_what_was_assumed(tmp_path: Path) -> None:
    """Tables of a machine whose matrix products all run at 1 GFLOP/s."""
    tables = tmp_path / "measured"
    tables.mkdir()
    row = {"precision": "fp32", "m": 512, "n": 768, "k": 768, "seconds": 2 * 512 * 768 * 768 / 1e9}
    memory = [{"operation": "copy", "bytes": 1 << 20, "seconds": 1e-3}]
    document = {"schema": 1, "device": "slow", "products": [{**row, "pass": "fwd"}], "memory": memory}
    (tables / "gemm.json").write_text(json.dumps(document))
    path = study(tmp_path, site="local", precision="fp32")
    assumed, _, _ = predict_study(path, site=None, measured=None, ranks=(), sets=())
    measured, about, machine = predict_study(path, site=None, measured=tables, ranks=(), sets=())
    assert about["products"]["basis"] == "measured here" and machine.device.peak("fp32") == pytest.approx(1e9)
    assert measured[0].time.seconds.value > 3 * assumed[0].time.seconds.value
    assert assumed[0].time.seconds.basis is InputBasis.ASSUMED
    with pytest.raises(UserError, match=r"contains neither gemm\.json nor network\.json"):
        predict_study(path, site=None, measured=tmp_path, ranks=(), sets=())


def test_a_study_that_does_not_fit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = study(tmp_path, site="lassen", model="megatron-18.4b", precision="fp16")
    with pytest.raises(UserError, match=r"small\.yaml:\d+: layout: run .* GB on rank 0 .* has 16 GB: set train"):
        check_memory(*expanded(path, "lassen"))
    small = study(tmp_path, site="lassen", precision="fp16")
    check_memory(*expanded(small, "lassen"))


def test_submit_refuses_exactly_the_runs_that_predict_reports_as_too_large(tmp_path: Path) -> None:
    """Memory around the limit of 16 GB is tested. NCCL needs the same memory, although its time is not predicted."""
    answers = set()
    for layers in (100, 125, 150):
        path = study(tmp_path, site="lassen", precision="fp16")
        path.write_text(path.read_text().replace("gpt2-small", f"{{layers: {layers}, hidden: 1536, heads: 12}}"))
        runs, _, _ = predict_study(path, site=None, measured=None, ranks=(), sets=(), only="scheme=baseline")
        over_nccl = load_study(path, ["train.transport=nccl"])
        site, _ = load_site("lassen")
        for plan in (expanded(path, "lassen")[0], expand(over_nccl, site.capacity, offer(site))):
            refused = False
            try:
                check_memory(plan, site, tmp_path)
            except UserError:
                refused = True
            assert refused == any(run.memory.fits is False for run in runs), layers
            answers.add(runs[0].memory.fits)
    assert answers == {True, None, False}


def test_a_program_with_an_unknown_model_is_never_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(
        "study: theirs\nsite: lassen\nprogram: {command: python train.py, log: nemo, steps: 9}\nranks_per_node: 4\n"
        "nodes: 1\nmatrix: {scheme: [baseline, naive-bf16]}\n"
    )
    runs, site, base = expanded(path, "lassen")
    tiny = site.model_copy(update={"node": site.node.model_copy(update={"gpu_memory_gb": 0.001})})
    check_memory(runs, tiny, base)


def test_a_kept_prediction_is_read_back_by_cell_and_scheme(tmp_path: Path) -> None:
    path = study(tmp_path)
    store_prediction(tmp_path, *expanded(path))
    written = json.loads((tmp_path / NAME).read_text())
    result = read_predictions(tmp_path)
    assert list(result) == [("", "baseline"), ("", "naive-int8")]
    assert result["", "baseline"].value == written["predictions"][0]["step_seconds"]["value"]


def test_one_scheme_that_cannot_be_predicted_leaves_the_others(tmp_path: Path) -> None:
    """The effect of variables on the MPI library is unknown.

    The command refuses the study, whereas a submission includes the other schemes.
    """
    path = study(tmp_path)
    text = path.read_text().replace("naive-int8", "by-library")
    path.write_text(text + "schemes: {by-library: {algorithm: native, environment: {MV2_USE_COMPRESSION: '1'}}}\n")
    with pytest.raises(UserError, match=r"scheme by-library: `hpcbench predict` does not cover .*environment"):
        predict_study(path, site=None, measured=None, ranks=(), sets=())
    store_prediction(tmp_path, *expanded(path))
    assert list(read_predictions(tmp_path)) == [("", "baseline")]
    written = json.loads((tmp_path / NAME).read_text())
    assert len(written["refused"]) == 1 and "by-library" in written["refused"][0]


@pytest.mark.parametrize(
    "damaged",
    [{"schema": 2}, {"predictions": 3}, {"predictions": [None]}, {"predictions": [{"cell": "", "scheme": "baseline"}]}],
)
def test_a_prediction_that_nobody_can_use_is_none(tmp_path: Path, damaged: dict[str, object]) -> None:
    (tmp_path / NAME).write_text(json.dumps({"schema": 1, "predictions": [], **damaged}))
    assert read_predictions(tmp_path) == {}


def test_predictions_need_no_torch_and_the_baseline_no_numpy(tmp_path: Path) -> None:
    path = study(tmp_path)
    code = (
        "import sys; from pathlib import Path; from hpcbench.predict.command import predict_study;"
        f"predict_study(Path({str(path)!r}), site=None, measured=None, ranks=(), sets=(), only='scheme=baseline');"
        "print([m for m in ('torch', 'numpy', 'mpi4py', 'cupy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_bench_gemm_writes_a_table_that_predict_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hpcbench.bench.gemm_main import bench_gemm

    options = {"site": "x", "device": "cpu", "precision": "fp32", "repeats": 1, "out": tmp_path / "new"}
    assert bench_gemm(hidden=[64], tokens=[32], **options) == 0  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    assert "Leave-one-out error, wgrad: mean" in printed
    assert re.search(r"\nbackward\s+64\s+32\s+learned, split 2 ways, by positions\s+\d+\n", printed)
    result, about, _ = predict_study(
        study(tmp_path, site="local", precision="fp32"), site=None, measured=tmp_path / "new", ranks=(), sets=()
    )
    assert about["products"]["basis"] == "measured here" and result[0].time.seconds.value > 0
    with pytest.raises(UserError, match="--precision int3: is unknown"):
        bench_gemm(hidden=[16], tokens=[32], **{**options, "precision": "int3"})  # type: ignore[arg-type]


def test_another_program_sends_fp32_gradients_and_is_named(tmp_path: Path) -> None:
    """The default program is the engine. Megatron-Core accumulates and sends gradients in fp32."""
    path = study(tmp_path)
    documents = [predicted(path), predicted(path, program="megatron-core")]
    engine, core = (each["predictions"][0]["channels"]["DP BACKWARD GRAD"] for each in documents)  # type: ignore[index]
    assert core["message_bytes"] == pytest.approx(2 * engine["message_bytes"], rel=0.01)
    assert [each["program"]["name"] for each in documents] == ["hpcbench", "megatron-core"]  # type: ignore[index]
    assert "Program: megatron-core, Megatron-Core." in printed(path, program="megatron-core")


def test_every_program_has_sources_and_a_wrong_name_lists_all(tmp_path: Path) -> None:
    for name in read_table():
        assert load_program(name).sources and load_program(name).title
    with pytest.raises(UserError, match=r"--program nemos: did you mean nemo\? use one of hpcbench, "):
        predicted(study(tmp_path), program="nemos")
