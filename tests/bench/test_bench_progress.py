"""Tests of the progress output of a long measurement."""

import io

from rich.console import Console

from hpcbench.bench.progress import progress


def test_a_log_gets_a_line_now_and_then() -> None:
    out, now = io.StringIO(), [0.0]
    with progress(Console(file=out, width=80), lambda: now[0]) as show:
        for turn in range(21):
            show(turn, 20, "zfp:8" if turn < 20 else "")
            now[0] += 3.0
    lines = out.getvalue().splitlines()
    assert lines[0] == "[ 0:12] 4 of 20 turns, next zfp:8"
    assert [line.split()[1] for line in lines] == ["0:12]", "0:24]", "0:36]", "0:48]"], "every ten seconds at most"


def test_a_quick_measurement_says_nothing() -> None:
    out = io.StringIO()
    with progress(Console(file=out), lambda: 0.0) as show:
        show(0, 1, "none")
        show(1, 1, "")
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=True, width=80)) as show:
        show(3, 4, "int8:256")
    shown = out.getvalue()
    assert "int8:256" in shown and " 75 %" in shown
    assert shown.rstrip().endswith(("\x1b[2K", "\x1b[1A\x1b[2K")), "the last thing written erases it"
