"""``hpcbench report --trace``: the ranks of a run in one file, and one step of each scheme as a picture."""

import json
from pathlib import Path
from typing import Any

import pytest
from planted_traces import plant
from typer.testing import CliRunner

from hpcbench.cli import app
from hpcbench.contract.trace import file_name
from hpcbench.errors import UserError
from hpcbench.plot_style import styled
from hpcbench.present.document import Figure
from hpcbench.present.figures import drawn
from hpcbench.report.build import build
from hpcbench.report.main import report
from hpcbench.report.sections import read
from hpcbench.testing.results import Planted, write


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two schemes of which one has been traced."""
    runs = [Planted("baseline", 1, 0.1, loss=2.0), Planted("naive-zfp8", 1, 0.08, loss=2.0)]
    written = write(tmp_path_factory.mktemp("traced") / "001", runs)
    plant(written / "runs" / "r1-naive-zfp8", ranks=10)
    return written


def test_the_ranks_of_a_run_are_joined(root: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["report", str(root), "--trace", str(tmp_path / "t")])
    assert ran.exit_code == 0, ran.output
    assert "10 ranks on one clock, to 2 us" in ran.output
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
    path = cut / "runs" / "r1-baseline" / "trace" / file_name(1)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(UserError, match=r"rank-1\.json: not a whole trace"):
        report([cut], output=tmp_path / "r.md", trace=tmp_path / "t")


def figures(root: Path) -> list[Figure]:
    document = build(read([root]).sections, (), figures=True)
    blocks = [block for chapter in document.chapters for block in chapter.blocks]
    return [block for block in blocks if isinstance(block, Figure) and block.name == "step-trace"]


def test_the_picture_has_a_line_a_rank_with_its_times(root: Path) -> None:
    (figure,) = figures(root)
    assert "step 5 of r1-naive-zfp8, 5 of 10 ranks" in figure.caption and "(to 2 us)" in figure.caption
    with styled():
        (axes,) = drawn(figure).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {k}" for k in (0, 2, 4, 6, 8)]
    bars: dict[str, list[Any]] = {}
    for collection in axes.collections:
        if not str(collection.get_label()).startswith("_"):
            bars[str(collection.get_label())] = [tuple(path.get_extents().intervalx) for path in collection.get_paths()]
    assert bars["forward"] == [pytest.approx((0, 30))] and bars["backward"] == [pytest.approx((30, 70))]
    assert bars["waiting"] == [pytest.approx((72, 80))] and bars["codec"] == [pytest.approx((60, 64))]
    assert bars["messages under way"] == [pytest.approx((60, 79))]
    assert axes.get_xlabel() == "time / ms"


def test_a_damaged_trace_does_not_keep_the_report_from_its_readers(root: Path, tmp_path: Path) -> None:
    runs = [Planted("baseline", 1, 0.1, loss=2.0), Planted("naive-zfp8", 1, 0.08, loss=2.0)]
    written = write(tmp_path / "001", runs)
    for run in ("r1-baseline", "r1-naive-zfp8"):
        plant(written / "runs" / run, ranks=2)
    path = written / "runs" / "r1-baseline" / "trace" / file_name(1)
    path.write_text(path.read_text()[:-9])
    (figure,) = figures(written)
    assert "Not drawn: " in figure.caption and "rank-1.json: not a whole trace" in figure.caption


def test_nothing_is_drawn_where_nothing_was_traced(tmp_path: Path) -> None:
    assert figures(write(tmp_path / "001", [Planted("baseline", 1, 0.1, loss=2.0)])) == []
