"""Tests of ``hpcbench report --trace``: the ranks of a run in one file, and a figure of one step per scheme."""

import json
from pathlib import Path

import pytest
from planted_results import Planted, write
from planted_traces import plant
from typer.testing import CliRunner

from hpcbench.cli import app
from hpcbench.contract.trace import (
    CODEC,
    DIRECTORY,
    STEP,
    STEPS,
    WAIT,
    ClockComparison,
    StepTrace,
    TraceSpan,
    name_file,
)
from hpcbench.contract.trace import write_trace as save
from hpcbench.errors import UserError
from hpcbench.plot_style import styled
from hpcbench.present.document import Figure
from hpcbench.present.figures import drawn
from hpcbench.report.build import build
from hpcbench.report.main import report
from hpcbench.report.plots.step_trace import COLUMNS
from hpcbench.report.sections import read


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a submission of two schemes. One scheme is traced."""
    runs = [Planted("baseline", 1, 0.1, loss=2.0), Planted("naive-zfp8", 1, 0.08, loss=2.0)]
    written = write(tmp_path_factory.mktemp("traced") / "001", runs)
    plant(written / "runs" / "r1-naive-zfp8", ranks=10)
    return written


def test_the_ranks_of_a_run_are_joined(root: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["report", str(root), "--trace", str(tmp_path / "t")])
    assert ran.exit_code == 0, ran.output
    assert "ranks on a common clock: 10, with an error of at most 2 us" in ran.output
    (path,) = (tmp_path / "t").iterdir()
    assert path.name == "r1-naive-zfp8.json"
    events = json.loads(path.read_text())["traceEvents"]
    begins = [event["ts"] for event in events if event["ph"] == "X" and event["name"] == "step"]
    assert begins == pytest.approx([k * 1e5 for _ in range(10) for k in range(3)], abs=0.01), "whatever clocks show"
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {*(f"rank {k} on n{k // 2}" for k in range(10)), "steps", "codec", "DP BACKWARD GRAD"}


def test_runs_without_a_trace_say_what_to_set(tmp_path: Path) -> None:
    plain = write(tmp_path / "001", [Planted("baseline", 1, 0.1, loss=2.0)])
    with pytest.raises(UserError, match=r"--trace: no run has a trace: set train\.trace"):
        report([plain], output=tmp_path / "r.md", trace=tmp_path / "t")


def test_a_trace_that_was_cut_is_named(root: Path, tmp_path: Path) -> None:
    cut = write(tmp_path / "001", [Planted("baseline", 1, 0.1, loss=2.0)])
    plant(cut / "runs" / "r1-baseline", ranks=2)
    path = cut / "runs" / "r1-baseline" / "trace" / name_file(1)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(UserError, match=r"rank-1\.json: not a complete trace"):
        report([cut], output=tmp_path / "r.md", trace=tmp_path / "t")


def figures(root: Path) -> list[Figure]:
    document = build(read([root]).sections, (), figures=True)
    blocks = [block for chapter in document.chapters for block in chapter.blocks]
    return [block for block in blocks if isinstance(block, Figure) and block.name == "step-trace"]


def test_the_picture_has_a_line_a_rank_with_its_times(root: Path) -> None:
    (figure,) = figures(root)
    assert "step 5 of r1-naive-zfp8, 4 of 10 ranks" in figure.caption and "(within 2 us)" in figure.caption
    with styled():
        (axes,) = drawn(figure).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {k}" for k in (0, 3, 6, 9)]
    # A step of 100 ms; the backward pass of odd ranks takes 5 ms longer, which is not visible on rank 0.
    expected = {"forward": (0, 30), "backward": (30, 70), "other": (70, 72), "waiting": (72, 80)}
    expected |= {"codec": (60, 64), "messages under way": (60, 79), "optimizer": (80, 100)}
    columns = {bars.get_label(): bars for bars in axes.containers if not str(bars.get_label()).startswith("_")}
    assert set(columns) == set(expected)
    for kind, (begin, end) in expected.items():
        height = 0.1 if kind in ("codec", "messages under way") else 0.6
        shares = [bar.get_height() / height for bar in columns[kind]]
        assert sum(shares) * 100 / COLUMNS == pytest.approx(end - begin, abs=0.2), kind
        drawn_at = [bar.get_x() for bar, share in zip(columns[kind], shares, strict=True) if share > 0]
        assert begin - 100 / COLUMNS <= min(drawn_at) and max(drawn_at) <= end, kind
    assert axes.get_xlabel() == "time / ms"


def test_a_step_of_hundreds_of_pieces_has_few_columns_and_kinds(tmp_path: Path) -> None:
    """A step alternates between computation and waits. One phase and one codec are too short to be visible."""
    schemes = ["baseline", "identity", "naive-bf16", "naive-int8", "naive-zfp8"]
    written = write(tmp_path / "001", [Planted(scheme, 1, 0.1, loss=2.0) for scheme in schemes])
    for scheme in schemes:
        directory = written / "runs" / f"r1-{scheme}" / DIRECTORY
        directory.mkdir()
        spans = [TraceSpan(STEPS, STEP, 0, 1, 5, {}), TraceSpan(STEPS, "forward", 0, 0.99, 5, {})]
        spans += [TraceSpan(STEPS, WAIT, k / 1000, (k + 0.6) / 1000, 5, {}) for k in range(990)]
        spans += [TraceSpan(CODEC, "encode", 0.5, 0.51, 5, {}), TraceSpan(STEPS, "optimizer", 0.99, 1, 5, {})]
        same = ClockComparison(0.0, 0.0, 1e-6)
        for rank in range(2):
            save(directory, StepTrace(rank, "n0", same, same, tuple(spans)))
    (figure,) = figures(written)
    assert "Other: optimizer, each less than 3 % of the steps." in figure.caption
    assert "Not drawn, because it is less than 3 % of the steps: codec." in figure.caption
    assert "Traced, but not drawn: 2 more schemes." in figure.caption
    with styled():
        fig = drawn(figure)
    assert len(fig.axes) == 3
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["forward", "other", "waiting"]
    waiting = next(bars for bars in fig.axes[0].containers if bars.get_label() == "waiting")
    assert len(waiting) == COLUMNS and waiting[10].get_height() == pytest.approx(0.6 * 0.6, abs=0.03)
    assert min(bar.get_width() for axes in fig.axes for bar in axes.patches) >= 1 / COLUMNS - 1e-6


def test_a_damaged_trace_does_not_keep_the_report_from_its_readers(root: Path, tmp_path: Path) -> None:
    runs = [Planted("baseline", 1, 0.1, loss=2.0), Planted("naive-zfp8", 1, 0.08, loss=2.0)]
    written = write(tmp_path / "001", runs)
    for run in ("r1-baseline", "r1-naive-zfp8"):
        plant(written / "runs" / run, ranks=2)
    path = written / "runs" / "r1-baseline" / "trace" / name_file(1)
    path.write_text(path.read_text()[:-9])
    (figure,) = figures(written)
    assert "Not drawn: " in figure.caption and "rank-1.json: not a complete trace" in figure.caption


def test_nothing_is_drawn_where_nothing_was_traced(tmp_path: Path) -> None:
    assert figures(write(tmp_path / "001", [Planted("baseline", 1, 0.1, loss=2.0)])) == []
