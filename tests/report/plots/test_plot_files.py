"""Tests of figures as files: identical bytes each time, the text color of the page, and unchanged names."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from planted_results import Planted, write
from planted_study import Run, channel, planted
from typer.testing import CliRunner

from hpcbench.cli import app
from hpcbench.plot_style import INK
from hpcbench.present.document import Figure
from hpcbench.present.figures import png, svg
from hpcbench.report.plots import OF_CELL
from hpcbench.report.plots.loss import plot_loss_over_steps
from hpcbench.report.plots.speed import plot_throughput
from hpcbench.report.plots.step import plot_time_split

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "$x_1$ <b>&amp;\"'\x1b[31m\x00 %s \\frac"
SHOWN = "$x_1$ <b>&amp;\"' [31m %s"


def figure() -> Figure:
    submission, cells = planted([Run("baseline", 1, 0.5), Run(HOSTILE, 1, 0.4)])
    drawn_figure = plot_throughput(submission, cells)
    assert drawn_figure is not None
    return drawn_figure


def split() -> Figure:
    """A figure with hatches, whose patterns have ids."""
    submission, (cell,) = planted([Run("baseline", channels=[channel(exposed_s=9.0, transfer_s=9.0)])])
    drawn_figure = plot_time_split(submission, cell)
    assert drawn_figure is not None
    return drawn_figure


def test_an_svg_is_one_element_without_background_and_in_the_ink_of_its_page() -> None:
    page_text = svg(split())
    root = ElementTree.fromstring(page_text)
    assert page_text.startswith("<svg ") and root.tag == f"{SVG}svg" and root.get("role") == "img"
    assert root.get("aria-label", "").startswith("Where the time of a step goes. ")
    assert INK not in page_text and page_text.count("currentColor") > 20
    assert "fill: #ffffff" not in page_text and "<metadata" not in page_text
    assert {"computation", "waiting", "baseline"} <= {text.text for text in root.iter(f"{SVG}text")}, "text is text"


def test_ids_of_an_svg_are_all_used_and_its_own() -> None:
    used: list[set[str]] = []
    for item in (split(), figure()):
        text = svg(item)
        ids = {element.get("id") for element in ElementTree.fromstring(text).iter()} - {None}
        assert all(f"#{name}" in text for name in ids)
        used.append({str(name) for name in ids})
    assert used[0] and used[1] and not used[0] & used[1]


def test_names_are_drawn_as_they_are() -> None:
    shown = [text.text or "" for text in ElementTree.fromstring(svg(figure())).iter(f"{SVG}text")]
    assert any(text.startswith(SHOWN[:12]) for text in shown), shown
    assert not any("\x1b" in text or "\x00" in text for text in shown)


def test_a_letter_that_the_font_lacks_is_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    submission, cells = planted([Run("baseline"), Run("日本")])
    drawn_figure = plot_throughput(submission, cells)
    assert drawn_figure is not None and "日本" in svg(drawn_figure) and not recwarn.list


def test_a_png_has_200_dots_an_inch_of_a_column() -> None:
    content = png(figure())
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(content[16:20], "big") == 680


def test_the_same_runs_give_the_same_bytes_in_another_process_with_other_settings(tmp_path: Path) -> None:
    """Hash seeds, the clock and the user's own style do not change the file."""
    (tmp_path / "matplotlibrc").write_text("text.color: red\nfont.size: 30\naxes.grid: True\nsavefig.dpi: 20\n")
    code = (
        "import sys, hashlib; sys.path[:0] = sys.argv[1:]\n"
        "from test_plot_files import figure, split, png, svg\n"
        "print(*(hashlib.sha256(b).hexdigest() for f in (figure(), split()) for b in (svg(f).encode(), png(f))))"
    )
    here, planted = Path(__file__).parent, Path(__file__).parents[1]
    seen = set()
    for seed, extra in (("1", {}), ("2", {"MATPLOTLIBRC": str(tmp_path), "SOURCE_DATE_EPOCH": "1"})):
        environment = {**os.environ, "PYTHONHASHSEED": seed, **extra}
        done = subprocess.run(
            [sys.executable, "-c", code, str(here), str(planted)], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1


def test_a_figure_of_many_long_runs_is_thin() -> None:
    runs = [Run(f"s{k % 5}" if k % 5 else "baseline", k // 5) for k in range(30)]
    submission, (cell,) = planted(runs, steps=400)
    drawn_figure = plot_loss_over_steps(submission, cell)
    assert drawn_figure is not None
    # 4 panels with 2 curves and 2 bands of at most 40 points, instead of 12,000 steps.
    assert len(svg(drawn_figure)) < 60_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    runs = [
        Planted(scheme, r, 0.3, 2.7, cell={"nodes": n})
        for scheme in ("baseline", "mpc")
        for r in (1, 2)
        for n in (1, 2)
    ]
    return write(tmp_path / "001", runs)


def test_the_command_writes_every_figure_twice_and_prints_what_it_would_without(root: Path, tmp_path: Path) -> None:
    plain = CliRunner().invoke(app, ["report", str(root)])
    done = CliRunner().invoke(app, ["report", str(root), "--plots", str(tmp_path / "new" / "plots")])
    assert (done.exit_code, done.output) == (plain.exit_code, plain.output)
    drawn = [name for name in OF_CELL if name not in ("step-trace", "gain-over-bandwidth")]  # no trace, no prediction
    names = [*drawn, *(f"{name}-2" for name in drawn), "throughput", "gain"]
    expected = sorted(f"{name}.{suffix}" for name in names for suffix in ("png", "svg"))
    assert sorted(path.name for path in (tmp_path / "new" / "plots").iterdir()) == expected


def test_a_directory_that_cannot_be_written_is_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("report", str(root), "--plots", str(tmp_path / "file"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"hpcbench: --plots {tmp_path / 'file'}: cannot be written: File exists"]


def test_without_matplotlib_one_line_says_what_to_install(root: Path, tmp_path: Path) -> None:
    done = run("report", str(root), "--plots", str(tmp_path / "plots"), before="sys.modules['matplotlib'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hpcbench: --plots: needs matplotlib: pip install matplotlib\n"


def test_without_scipy_one_line_says_what_to_install(root: Path) -> None:
    done = run("report", str(root), before="sys.modules['scipy'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hpcbench: intervals of repeated runs need SciPy (")
    assert done.stderr.endswith("): pip install scipy\n") and done.stderr.count("\n") == 1


def test_a_report_without_plots_imports_no_matplotlib(root: Path) -> None:
    after = (
        "assert 'hpcbench.report.plots.loss' in sys.modules and not {'matplotlib', 'scipy.stats'} & set(sys.modules)"
    )
    done = run("report", str(root), after=after)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def run(*arguments: str, before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, with statements before and after it."""
    code = (
        f"import sys; {before}\nfrom hpcbench import cli\nsys.argv = ['hpcbench', *{list(arguments)!r}]\n"
        f"try:\n    cli.main()\nexcept SystemExit as end:\n    status = end.code\n{after}\nsys.exit(status)"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
