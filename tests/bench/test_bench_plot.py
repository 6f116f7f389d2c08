"""Tests of the plot: a file of the requested format, with a point and a name for each codec."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cli import bench

from hpcbench.bench.codecs import CodecRow, CodecThroughput, Result
from hpcbench.bench.plot import figure
from hpcbench.present.figures import svg

NAMES = ["none", "mpc", "fp16", "zfp:16", "int8:256", "topk:0.01"]


def test_svg_names_every_codec_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench(monkeypatch, *NAMES, "--plots", str(tmp_path)) == 0
    svg = (tmp_path / "codecs.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    for name in NAMES:
        assert sum(bool(re.fullmatch(rf"{re.escape(name)} \([0-9.]+\)", text)) for text in texts) == 1, (name, texts)
    assert {"relative RMSE", "bits per value on the wire", "exact", "encode GB/s (in brackets)"} <= set(texts)


def test_png(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench(monkeypatch, "bf16", "--plots", str(tmp_path)) == 0
    content = (tmp_path / "codecs.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(content[16:20], "big") >= 1000, "wide enough for print"


def test_several_outputs_each_in_the_format_of_its_suffix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = [tmp_path / f"x.{suffix}" for suffix in ("html", "md", "txt")]
    assert bench(monkeypatch, "bf16", *(part for file in files for part in ("--output", str(file)))) == 0
    page, markdown, text = (file.read_text(encoding="utf-8") for file in files)
    assert page.count("<svg") == 1 and ">bf16<" in page
    assert "| codec | ratio |" in markdown and "\ncodec   ratio " in text


def test_codecs_with_infinite_error_are_named_and_not_drawn() -> None:
    speeds = {"encode": CodecThroughput(3.0, 2.0)}
    rows = [
        CodecRow(name, False, 100, 2.0, 16.0, speeds, rmse, rmse, None, "lost")
        for name, rmse in (("good", 1e-3), ("overflowed", math.inf))
    ]
    drawn = svg(figure(Result(CodecThroughput(1, 1), tuple(rows)), "title"))
    assert "good (3.00)" in drawn and "infinite error, left out: overflowed" in drawn and "overflowed (" not in drawn


def test_only_lossless_codecs_make_a_plot_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench(monkeypatch, "none", "--plots", str(tmp_path)) == 0
    assert "none (" in (tmp_path / "codecs.svg").read_text(encoding="utf-8")


def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from hpcbench import cli\n"
        f"sys.argv = ['hpcbench', 'bench', 'codecs', '--plots', {str(tmp_path)!r}]; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hpcbench: --plots: needs matplotlib: pip install matplotlib\n"


def test_matplotlib_is_imported_for_a_plot_alone() -> None:
    code = (
        "import sys\nfrom hpcbench.bench.main import bench_codecs\nbench_codecs(['none'], mib=0.01, repeats=1)\n"
        "assert 'numpy' in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
