"""Tests of the answer of a report: whether compression pays, what the algorithm alone gains, and the method."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from planted_results import Planted, write
from planted_schemes import SIZE, diverge, planted
from report_tables import cell

from hpcbench.report.answer import answer


def test_an_answer_is_inconclusive_if_only_controls_can_be_compared(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7), "naive-bf16": (0.19, 2.7)}))
    diverge(root, "r2-mzhybrid", 5)
    first, *_ = answer(cell(root), "local")
    sentence = "no scheme with a codec can be compared with the baseline."
    assert first == f"Inconclusive. On this machine ({SIZE}) {sentence}"


def test_a_fast_divergence_does_not_turn_the_answer(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.05, 2.7), "mzhybrid": (0.3, 2.7)}))
    diverge(root, "r2-naive-zfp8", 5)
    answer_lines = answer(cell(root), "local")
    assert (
        answer_lines[0]
        == f"No. On this machine ({SIZE}) compression does not pay: all schemes are slower than the baseline."
    )
    assert answer_lines[1] == "Diverged and therefore not compared: naive-zfp8."


@pytest.mark.parametrize(
    ("attempts", "says"),
    [
        ((1, 1, 1), "runs with the same seed (number of pairs: 3), in the same allocation; intervals"),
        (
            (1, 2, 1),
            "runs with the same seed (number of pairs: 3), 1 of 3 pairs in two allocations, perhaps on other nodes;",
        ),
        (
            (2, 2, 2),
            "runs with the same seed (number of pairs: 3), each run in its own allocation, perhaps on other nodes; int",
        ),
    ],
)
def test_pairs_of_two_allocations_are_told(tmp_path: Path, attempts: tuple[int, ...], says: str) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    for scheme in ("baseline", "mzhybrid"):
        for repeat, attempt in enumerate(attempts, 1):
            path = root / "runs" / f"r{repeat}-{scheme}" / "status.json"
            mark = json.loads(path.read_text())
            path.write_text(json.dumps({**mark, "id": "7", "attempt": attempt if scheme == "mzhybrid" else 1}))
    assert says in " ".join(answer(cell(root), "lassen"))


def test_a_control_is_told_from_compression(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "identity": (0.1, 2.7), "mzhybrid": (0.4, 2.7)}))
    answer_lines = answer(cell(root), "lassen")
    assert answer_lines[:2] == [
        f"No. On lassen ({SIZE}) compression does not pay: all schemes with a codec are slower than the baseline.",
        "Faster without a codec, at a loss no worse than the baseline's: identity (2.00 times, no codec).",
    ]
    assert answer_lines[2].startswith(
        "identity, the same algorithm without a codec, runs at 2.00 times the baseline's speed"
    )


def test_what_is_not_faster_than_its_algorithm_without_a_codec_does_not_pay(tmp_path: Path) -> None:
    times = {"baseline": (0.4, 2.7), "identity": (0.3, 2.7), "mzhybrid": (0.32, 2.7)}
    owing = write(tmp_path / "1", planted(times))
    assert answer(cell(owing), "local")[:2] == [
        f"Inconclusive. On this machine ({SIZE}) it is unclear whether compression pays.",
        "Faster than the baseline: mzhybrid (1.25 times the baseline's speed, 1.24 to 1.26), at a loss no worse than"
        " the baseline's, but not significantly faster than identity, which has no codec.",
    ]
    both = write(tmp_path / "2", planted({**times, "naive-mpc": (0.2, 2.7)}))
    first, recommendation, also, second = answer(cell(both), "local")[:4]
    assert also == "Also faster, at a loss no worse than the baseline's: identity (1.33 times, no codec)."
    assert recommendation.startswith("With naive-mpc, 1000 steps take ")
    assert first.startswith(
        f"Yes. On this machine ({SIZE}) compression pays. Best: naive-mpc, 2.00 times the baseline's speed (95 %"
        " interval 1.98 to 2.01); the loss changes by "
    )
    change = r"[+-]\d\.\d{4} \([+-]\d\.\d{4} to [+-]\d\.\d{4}\), no worse within the margin of 1 %\.$"
    assert re.search(change, first)
    assert second == (
        "Faster than the baseline: mzhybrid (1.25 times the baseline's speed, 1.24 to 1.26), at a loss no worse than"
        " the baseline's, but not significantly faster than identity, which has no codec."
    )


def test_no_scheme_pays_and_it_is_said(tmp_path: Path) -> None:
    slow = write(tmp_path / "1", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.4, 2.7), "naive-mpc": (0.3, 2.7)}))
    assert answer(cell(slow), "local")[0] == (
        f"No. On this machine ({SIZE}) compression does not pay: all schemes are slower than the baseline."
    )
    worse = write(tmp_path / "2", planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.1, 3.7)}))
    assert answer(cell(worse), "local")[0] == (
        f"No. On this machine ({SIZE}) compression does not pay: the faster schemes train to a worse loss."
    )


@pytest.mark.parametrize(
    ("ratios", "sentence"),
    [
        ((1.1,), f"Inconclusive. On this machine ({SIZE}) it is unclear whether compression pays."),
        ((1.1, 1.2, 2.3), f"Inconclusive. On this machine ({SIZE}) it is unclear whether compression pays."),
        (
            (1.12, 1.2, 1.275),
            f"Inconclusive. On this machine ({SIZE}) compression seems to lose time: naive-zfp8 (0.84 times the"
            " baseline's speed, 0.71 to 0.98 before correction for multiple tests)",
        ),
    ],
)
def test_a_loss_of_time_seems_so_only_where_its_interval_lies_below_one(
    tmp_path: Path, ratios: Sequence[float], sentence: str
) -> None:
    runs = [Planted("baseline", k, 1.0, 2.0) for k in range(1, len(ratios) + 1)]
    runs += [
        Planted(scheme, k, ratio, 2.0) for scheme in ("naive-zfp8", "naive-mpc") for k, ratio in enumerate(ratios, 1)
    ]
    answer_text = " ".join(answer(cell(write(tmp_path, runs)), "local"))
    assert sentence in answer_text
    assert "does not pay" not in answer_text


@pytest.mark.parametrize(
    ("scheme", "ratios", "sentence"),
    [
        ("naive-bf16", (0.4, 1.5, 6.0), "The speed of naive-bf16, a cast to 16 bits, is inconclusive: 1.53 times"),
        (
            "identity",
            (0.4, 1.5, 6.0),
            "The speed of identity, the same algorithm without a codec, is inconclusive: 1.53 times the baseline's"
            " speed, 0.05 to 44.30.",
        ),
        (
            "identity",
            (1.57,),
            "The speed of identity, the same algorithm without a codec, is inconclusive: 1.57 times the baseline's"
            " speed, 1 pair.",
        ),
        (
            "identity",
            (1.56, 1.57, 1.58),
            "identity, the same algorithm without a codec, runs at 1.57 times the baseline's speed, 1.55 to 1.60:"
            " this part of the difference is due to the algorithm, and the rest to the codecs.",
        ),
        (
            "identity",
            (0.999, 1.0, 1.001),
            "identity, the same algorithm without a codec, runs at 1.00 times the baseline's speed, 1.00 to 1.00: the"
            " algorithm alone gains nothing.",
        ),
    ],
)
def test_a_part_is_the_algorithms_only_where_it_is_shown(
    tmp_path: Path, scheme: str, ratios: Sequence[float], sentence: str
) -> None:
    runs = [Planted("baseline", k, 0.2, 2.7) for k in range(1, len(ratios) + 1)]
    runs += [Planted(scheme, k, 0.2 / ratio, 2.7) for k, ratio in enumerate(ratios, 1)]
    answer_lines = answer(cell(write(tmp_path, runs)), "local")
    assert any(line.startswith(sentence) for line in answer_lines)
    assert ("this part" in " ".join(answer_lines)) == ("this part" in sentence)


def test_the_method_is_said(tmp_path: Path) -> None:
    two = {"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7), "naive-mpc": (0.3, 2.7)}
    answer_text = " ".join(answer(cell(write(tmp_path / "1", planted(two))), "local"))
    assert "; intervals (95 %, Student's t) describe one comparison each. The error level of 5 %" in answer_text
    assert (
        "The error level of 5 % applies to all findings of the report together, even if repeats are added and the"
        " report is read again at 3, 5, 8, 12, 20, 30, 50 or 100 pairs." in answer_text
    )
    assert (
        "A loss is no worse if two one-sided tests show it within 0.0270 of the baseline's (1 % of it)." in answer_text
    )


def test_repeats_that_would_be_enough_are_said(tmp_path: Path) -> None:
    seconds = (0.19, 0.17, 0.18, 0.199)
    runs = [Planted("baseline", k + 1, 0.2, 2.7) for k in range(4)]
    runs += [Planted("mzhybrid", k + 1, seconds[k], 2.7) for k in range(4)]
    compared_cell = cell(write(tmp_path, runs))
    row = compared_cell.row("mzhybrid")
    assert row is not None and row.speed is not None and row.speed.enough is not None
    answer_text = " ".join(answer(compared_cell, "local"))
    assert f"With the current scatter, about {row.speed.enough} pairs would probably be enough" in answer_text


def test_slow_nodes_and_odd_allocations_are_named(tmp_path: Path) -> None:
    runs = planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}, repeats=4)
    for run in runs:
        run.hosts = {"n1": 1.0, "n2": 1.001, "n3": 1.12, "n4": 0.999}
    root = write(tmp_path, runs)
    slow = root / "runs" / "r3-baseline" / "log.txt"
    slow.write_text(slow.read_text().replace("time 0.19", "time 0.39").replace("samples/s 4", "samples/s 2"))
    answer_lines = answer(cell(root), "local")
    assert "Node n3 is 12 % slower than the median of its runs' nodes (8 of 8 runs)." in answer_lines
    assert any(sentence.startswith("The baseline of r3 ran at 0.5") for sentence in answer_lines)


@pytest.mark.parametrize("others", [0, 5])
@pytest.mark.parametrize("repeats", [3, 5])
def test_a_speed_of_about_one_is_not_called_too_few_repeats(tmp_path: Path, repeats: int, others: int) -> None:
    """A speed of 1.00 (0.98 to 1.02) is as fast as the baseline within 3 %.

    Together with undecided comparisons, the result is inconclusive, not unknown.
    """
    ratios = {3: (0.992, 1.0, 1.008), 5: (0.984, 0.992, 1.0, 1.008, 1.016)}[repeats]
    names = ["mzhybrid", *(f"other{k}" for k in range(others))]
    runs = [Planted("baseline", k + 1, 0.2, 2.7) for k in range(repeats)]
    runs += [
        Planted(name, k + 1, 0.2 * ratios[(k + place) % repeats], 2.7)
        for place, name in enumerate(names)
        for k in range(repeats)
    ]
    compared_cell = cell(write(tmp_path, runs))
    row = compared_cell.row("mzhybrid")
    assert row is not None and row.speed is not None and row.speed.low is not None and row.speed.high is not None
    assert (round(row.speed.low, 2), round(row.speed.high, 2)) == (0.98, 1.02)
    assert row.verdict == ("about as fast, inconclusive" if others else "as fast (within 3 %)")
    if not others:
        answer_lines = answer(compared_cell, "local")
        assert answer_lines[:2] == [
            f"No. On this machine ({SIZE}) compression does not pay: no scheme is 3 % faster than the baseline.",
            "As fast as the baseline, within 3 %: mzhybrid (1.00 times the baseline's speed, 0.98 to 1.02).",
        ]
