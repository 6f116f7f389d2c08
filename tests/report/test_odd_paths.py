"""Tests of file names that are not UTF-8. Each format writes its file, and the page links to the correct file."""

import os
import shutil
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from planted_results import Planted, write

from hpcbench.report.formats import FORMATS, ONLY_RUNS
from hpcbench.report.main import report

COLLECT = Path(__file__).parents[1] / "collect"
INPUTS = (COLLECT / "dialects" / "logs" / "megatron-2026.log", COLLECT / "microbenchmarks" / "osu-bw-5.6.txt")
ODD = [b"\xff", b"b\xe4d \xed\xa0\x80", "\N{SNOWMAN}".encode() + b"\x80"]
"""A single byte, Latin-1 with an encoded surrogate, and a character with an extra byte."""


def odd_path(directory: Path, name: bytes, suffix: str) -> Path:
    return Path(os.fsdecode(os.fsencode(directory) + b"/" + name + suffix.encode()))


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    ("source", "format"),
    [
        (source, format)
        for source in INPUTS
        for format in sorted(set(FORMATS) - {"table"})
        if source is INPUTS[0] or format not in ONLY_RUNS
    ],
)
def test_each_format_takes_odd_names(tmp_path: Path, source: Path, format: str, name: bytes) -> None:
    directory = odd_path(tmp_path, name, "")
    directory.mkdir()
    log = odd_path(directory, name, source.suffix)
    shutil.copy(source, log)
    output = odd_path(directory, b"out" + name, FORMATS[format][0])
    report([log], format, output)
    assert output.read_text(encoding="utf-8")  # strict


def test_a_page_links_to_the_file_with_the_odd_name(tmp_path: Path) -> None:
    log = odd_path(tmp_path, ODD[0] + b" #1", ".txt")
    shutil.copy(INPUTS[0], log)
    report([log], "html", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    links = [part.split('"')[0] for part in page.split('href="./')[1:]]
    assert os.fsencode(log.name) in [unquote_to_bytes(link) for link in links]


def test_a_submission_below_an_odd_directory(tmp_path: Path) -> None:
    directory = odd_path(tmp_path, ODD[1], "")
    root = write(directory / "001", [Planted("baseline", 1, 0.3, 2.7), Planted("mzhybrid", 1, 0.3, 2.7)])
    for format in FORMATS:
        report([root], format, tmp_path / f"out.{format}")
    assert "mzhybrid" in (tmp_path / "out.html").read_text(encoding="utf-8")
