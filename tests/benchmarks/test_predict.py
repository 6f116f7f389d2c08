"""Tests of the prediction benchmarks in their short form."""

import re
from collections.abc import Callable

import pytest
from printed import Printed

Tiny = Callable[..., Printed]


def test_published_runs(tiny: Tiny) -> None:
    """The output contains the errors of both halves of the runs, and of the targets.

    The errors of the first model are unchanged.
    """
    lines = tiny("predict_published.py").lines
    for half in ("chosen on, all", "checked on, all"):
        (line,) = [line for line in lines if line.startswith(half)]
        assert re.search(r": \d+ rows, mean \d+\.\d %, median [+-]\d+\.\d %, worst \d+\.\d %$", line)
    targets = [line for line in lines if line.strip().startswith("target")]
    assert len(targets) == 3
    for line in targets:
        worst = re.search(r"worst (\d+\.\d) %", line)
        assert worst and float(worst[1]) < 10
    assert any(line.startswith("model states of GPT-3 175B") and "2.79 TB" in line for line in lines)


@pytest.mark.long
def test_the_papers_runs(tiny: Tiny) -> None:
    """The output contains a range for every scheme on each machine."""
    lines = tiny("predict_paper.py").lines
    for scheme in ("naive-mpc", "naive-zfp8", "mzhybrid", "zhybrid-24-8"):
        result = [line for line in lines if line.strip().startswith(f"{scheme}:")]
        assert len(result) == 3
        assert all(re.search(r"[+-]\d+\.\d to [+-]\d+\.\d %, median [+-]\d+\.\d %: \w+", line) for line in result)


def test_speed(tiny: Tiny) -> None:
    lines = tiny("predict_speed.py").lines
    assert re.fullmatch(r"10 runs: [\d.]+ s, goal 2 s for 1000: (met|missed)", lines[-2])
    assert re.fullmatch(r"10240 ranks: [\d.]+ s, goal 1 s: (met|missed)", lines[-1])


def test_programs(tiny: Tiny) -> None:
    """The error of each family is printed, and no real run is rejected as too large."""
    lines = tiny("predict_programs.py").lines
    (line,) = [line for line in lines if line.startswith("all: ")]
    matched = re.fullmatch(r"all: 3 rows, mean (\d+\.\d) %, signed [+-][\d.]+ %, worst [\d.]+ %, .*", line)
    assert matched and float(matched[1]) < 20
