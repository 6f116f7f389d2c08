"""Tests of comparisons between schemes: Pareto dominance, the Pareto front, and the resulting sentences."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from planted_results import RULES, Planted, settings, write
from report_tables import entries, tables

from hpcbench.collect.submission import RunResult
from hpcbench.contract.criteria import Criteria
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState
from hpcbench.report.answer import answer
from hpcbench.report.build import build
from hpcbench.report.compare import Cell, compare
from hpcbench.report.front import compute_front
from hpcbench.report.kinds import SchemeKind
from hpcbench.report.measures import Measures, measure
from hpcbench.report.sections import read

PAIRS = 8


@cache
def nothing() -> Measures:
    return measure(RunResult("", "", "", "", None, "", {}, ResolvedState("completed"), None))


def planted(
    schemes: dict[str, tuple[float, float]], pairs: int = PAIRS, scatter: float = 0.004, of_loss: float = 0.3
) -> Cell:
    """Return a cell of schemes with given relative speeds and losses, and small noise per run."""
    rng = random.Random(7)
    runs = []
    for pair in range(1, pairs + 1):
        machine, seed = 1 + 0.1 * rng.gauss(0, 1), 0.02 * rng.gauss(0, 1)
        for scheme, (speed, loss) in schemes.items():
            stated = settings(Planted(scheme, pair, 0.2, loss))
            run = RunResult(
                "r",
                "s",
                "x",
                scheme,
                pair,
                f"r{pair}",
                {},
                ResolvedState("completed"),
                None,
                LoggedSettings.read(stated),
            )
            rate = 100 * machine * speed * (1 + scatter * rng.gauss(0, 1))
            valid = loss + seed + of_loss * scatter * rng.gauss(0, 1)
            runs.append(replace(nothing(), run=run, samples_per_s=rate, loss_valid=valid))
    (cell,) = compare(runs, "baseline", Criteria())
    return cell


FOUR = {
    "baseline": (1.0, 2.5),
    "naive-bf16": (1.2, 2.5),
    "naive-zfp8": (1.4, 2.9),
    "mzhybrid": (1.1, 2.5),
    "zhybrid-16-8": (1.201, 2.5),
}


def test_what_is_slower_at_an_equal_loss_is_beaten_and_what_is_faster_at_a_worse_one_is_not() -> None:
    pareto = compute_front(planted(FOUR))
    assert pareto.beaten_by("mzhybrid") == ["naive-bf16", "zhybrid-16-8"]
    assert set(pareto.beaten_by("baseline")) == {"naive-bf16", "mzhybrid", "zhybrid-16-8"}
    assert pareto.unbeaten == ["naive-bf16", "naive-zfp8", "zhybrid-16-8"]


def test_whether_a_codec_pays_is_asked_before_schemes_are_compared_with_each_other() -> None:
    """With few repeats, comparing all pairs of schemes leaves too little of the significance level to show a gain."""
    rows = {**FOUR, "naive-zfp8": (1.4, 2.5), "identity": (1.01, 2.5)}
    cell = planted(rows, pairs=3, scatter=0.06, of_loss=0.02)
    pareto = compute_front(cell)
    gain, duel = pareto.gain("naive-zfp8", "identity"), pareto.duel("naive-zfp8", "naive-bf16")
    assert gain and duel and gain.faster and not duel.faster
    assert gain.speed and duel.speed and gain.speed.equal and duel.speed.equal
    assert gain.speed.equal.level > 10 * duel.speed.equal.level
    assert {duel.scheme for duel in pareto.gains} == {"naive-zfp8", "mzhybrid", "zhybrid-16-8"}
    assert answer(cell, "local")[0].startswith(
        "Yes. On this machine (gpt-tiny, 12 steps) compression pays. Best: naive-zfp8, "
    )
    assert compute_front(planted(FOUR)).gains == ()


@pytest.mark.parametrize(
    ("schemes", "best", "later"),
    [
        (
            FOUR,
            "Best so far: zhybrid-16-8, 1.20 times ",
            [
                "zhybrid-16-8 is not significantly better than a cast to 16 bits, which is simpler: naive-bf16.",
                "Also faster, at a loss no worse than the baseline's: naive-bf16 (1.20 times, a cast to 16 bits),"
                " mzhybrid (1.10 times).",
                "Faster, but at a worse loss: naive-zfp8 (1.40 times).",
            ],
        ),
        (
            {**FOUR, "zhybrid-16-8": (1.15, 2.5)},
            "Fastest codec, but significantly beaten by naive-bf16: zhybrid-16-8, 1.15 times ",
            ["Also faster, at a loss no worse than the baseline's: naive-bf16 (1.20 times, a cast to 16 bits),"],
        ),
        (
            {**FOUR, "naive-zfp8": (1.4, 2.5), "zhybrid-16-8": (1.402, 2.5)},
            "Best (the simplest that no other scheme significantly beats): naive-zfp8, 1.40 times ",
            ["Also faster, at a loss no worse than the baseline's: zhybrid-16-8 (1.41 times), naive-bf16"],
        ),
        ({**FOUR, "naive-zfp8": (1.4, 2.3)}, "Best: naive-zfp8, 1.40 times ", ["Also faster"]),
    ],
)
def test_a_scheme_is_called_best_only_if_it_is(
    schemes: dict[str, tuple[float, float]], best: str, later: list[str]
) -> None:
    first, *others = answer(planted(schemes), "local")
    assert first.startswith(f"Yes. On this machine (gpt-tiny, 12 steps) compression pays. {best}")
    end = ", better by more than the margin of 1 %." if schemes["naive-zfp8"][1] == 2.3 else " the margin of 1 %."
    assert first.endswith(end)
    for sentence, start in zip(others, later, strict=False):
        assert sentence.startswith(start)


def test_what_a_gain_has_shown_stays_shown_when_schemes_are_compared() -> None:
    rows = {**FOUR, "naive-zfp8": (1.4, 2.5), "identity": (1.01, 2.5)}
    pareto = compute_front(planted(rows, pairs=3, scatter=0.06, of_loss=0.02))
    duel = pareto.duel("naive-zfp8", "identity")
    assert duel is not None and duel.faster


def test_a_better_loss_at_an_equal_speed_beats_and_at_a_speed_that_is_not_shown_does_not() -> None:
    schemes = {"baseline": (1.0, 2.5), "naive-zfp8": (1.2, 2.7), "mzhybrid": (1.2, 2.6)}
    assert compute_front(planted(schemes, scatter=0.003)).beaten_by("naive-zfp8") == ["mzhybrid"]
    noisy = planted(schemes, scatter=0.02)
    duel = compute_front(noisy).duel("mzhybrid", "naive-zfp8")
    assert duel is not None and duel.loss is not None and duel.speed is not None
    assert (duel.loss.shown, duel.speed.as_fast, duel.beats) == ("better", False, False)


def test_a_duel_is_the_same_from_both_sides() -> None:
    duel = compute_front(planted(FOUR)).duel("naive-bf16", "mzhybrid")
    assert duel is not None and duel.speed is not None and duel.loss is not None
    other = duel.turn()
    assert other.speed is not None and other.loss is not None
    assert (duel.beats, other.beats, duel.faster, other.faster) == (True, False, True, False)
    assert other.speed.slower and other.speed.estimate == pytest.approx(1 / duel.speed.estimate)
    assert other.speed.low is not None and duel.speed.high is not None
    assert other.speed.low == pytest.approx(1 / duel.speed.high)
    assert other.loss.estimate == -duel.loss.estimate
    assert other.turn() == replace(duel, speed=other.turn().speed, loss=other.turn().loss)


def test_schemes_compared_with_each_other_divide_what_the_answers_leave() -> None:
    levels = []
    for names in (("mzhybrid", "naive-bf16"), tuple(FOUR)[1:]):
        cell = planted({name: FOUR[name] for name in ("baseline", *names)})
        speeds = [duel.speed for duel in cell.duels]
        levels.append(min(speed.equal.level for speed in speeds if speed and speed.equal))
        losses = [duel.loss for duel in cell.duels]
        assert all(loss and loss.margin == pytest.approx(0.01 * 2.5, rel=0.1) for loss in losses)
    assert 0 < levels[1] < levels[0]


def test_one_pair_beats_nothing() -> None:
    pareto = compute_front(planted(FOUR, pairs=1))
    assert pareto.unbeaten == list(FOUR)
    assert all(duel.speed and duel.speed.equal is None for duel in pareto.duels)


def test_the_answer_sets_the_best_scheme_beside_the_cast_and_names_the_simplest() -> None:
    answer_lines = answer(planted(FOUR), "local")
    caveat, beside = [sentence for sentence in answer_lines if sentence.startswith("zhybrid-16-8 is ")]
    assert caveat == ("zhybrid-16-8 is not significantly better than a cast to 16 bits, which is simpler: naive-bf16.")
    assert beside.startswith("zhybrid-16-8 is as fast as naive-bf16 (1.00, ")
    assert beside.endswith("), at a loss that is no worse.")
    assert any(
        sentence.startswith("naive-bf16, a cast to 16 bits, runs at 1.20 times the b") for sentence in answer_lines
    )
    assert (
        "Simplest of the schemes that no other scheme significantly beats: naive-bf16 (a cast to 16 bits)."
        in answer_lines
    )


def test_a_scheme_that_beats_the_cast_is_the_simplest_that_nothing_beats() -> None:
    answer_lines = answer(planted({**FOUR, "zhybrid-16-8": (1.35, 2.5)}), "local")
    assert any(sentence.startswith("zhybrid-16-8 is faster than naive-bf16 (1.1") for sentence in answer_lines)
    assert any(
        "scheme significantly beats: zhybrid-16-8 (codecs by traffic, or with feedback)." in line
        for line in answer_lines
    )


def test_an_interval_that_seems_to_contradict_its_finding_is_called_uncorrected() -> None:
    (line,) = [
        line
        for line in answer(planted({**FOUR, "zhybrid-16-8": (1.29, 2.5)}, pairs=3, scatter=0.015), "local")
        if line.startswith("zhybrid-16-8 is not significantly faster than naive-bf16 (")
    ]
    low, high = line.split(", ", 2)[1].split(" to ")
    assert float(low) > 1
    assert high.endswith(" before correction for multiple tests)")


def test_the_answer_says_that_no_cast_ran() -> None:
    answer_lines = answer(planted({name: FOUR[name] for name in ("baseline", "mzhybrid")}), "local")
    assert any(sentence.startswith("No cast to 16 bits (naive-bf16, naive-fp16) was run") for sentence in answer_lines)


@pytest.mark.parametrize(
    ("precision", "gradients", "half"),
    [("bf16", "auto", True), ("fp16", "bf16", True), ("bf16", "fp32", False), ("fp32", "auto", False)],
)
def test_where_messages_have_16_bits_the_baseline_is_the_cast(precision: str, gradients: str, half: bool) -> None:
    cell = planted({name: FOUR[name] for name in ("baseline", "mzhybrid")})
    train = {
        "precision": precision,
        "comm_precision": {"activations": "auto", "gradients": gradients, "parameters": "auto"},
    }
    for run in cell.runs:
        raw = run.run.settings.raw
        run.run.settings = LoggedSettings.read({**raw, "train": {**raw["train"], **train}})
    answer_lines = answer(cell, "local")
    assert any(sentence.startswith("Without a codec, messages have 16 bits") for sentence in answer_lines) == half
    assert any(sentence.startswith("No cast to 16 bits") for sentence in answer_lines) != half


def test_a_baseline_that_casts_is_the_cast() -> None:
    cell = planted({name: FOUR[name] for name in ("baseline", "mzhybrid")})
    raw = next(run.run.settings.raw for run in planted(FOUR).runs if run.run.scheme == "naive-bf16")
    for run in cell.runs:
        if run.run.scheme == "baseline":
            run.run.settings = LoggedSettings.read({**run.run.settings.raw, "scheme": raw["scheme"]})
    answer_lines = answer(cell, "local")
    assert "The baseline casts messages to 16 bits: codecs are compared with a cast." in answer_lines
    assert not any(sentence.startswith("No cast to 16 bits") for sentence in answer_lines)


def test_controls_that_nothing_beats_are_the_simplest() -> None:
    """A codec is named only if it is significantly better.

    The previous sentence also lists the controls as nondominated.
    """
    schemes = {"baseline": (1.0, 2.5), "identity": (1.2, 2.5), "naive-bf16": (1.2, 2.5), "mzhybrid": (1.2, 2.5)}
    last = "Simplest of the schemes that no other scheme significantly beats: {}"
    answer_lines = answer(planted(schemes), "local")
    assert any(sentence.startswith(last.format("identity (no codec)")) for sentence in answer_lines)
    slow = answer(planted({**schemes, "identity": (1.0, 2.5), "baseline": (1.0, 2.5)}), "local")
    assert any(sentence.startswith(last.format("naive-bf16 (a cast")) for sentence in slow)
    # The cast alone is faster, the codec is not. The cast is no longer skipped for being a control.
    open_ = answer(
        planted({**schemes, "identity": (0.9, 2.5), "naive-bf16": (1.0, 2.5)}, pairs=3, scatter=0.1), "local"
    )
    assert any("no other scheme significantly beats: baseline." in sentence for sentence in open_)
    worse = answer(planted({**schemes, "naive-bf16": (1.3, 2.9), "identity": (0.9, 2.5)}), "local")
    assert any(sentence.startswith(last.format("mzhybrid")) for sentence in worse)


def test_a_worse_loss_is_never_the_simplest_good_scheme() -> None:
    """The fastest scheme has a worse loss, so it is on the Pareto front, but not in the answer."""
    answer_lines = answer(planted({"baseline": (1.0, 2.5), "naive-zfp8": (1.4, 2.9), "mzhybrid": (1.2, 2.5)}), "local")
    assert answer_lines[-1] and any("mzhybrid (codecs by traffic" in sentence for sentence in answer_lines)
    assert not any("beat: naive-zfp8 (one codec" in sentence for sentence in answer_lines)


def test_kinds_from_the_simplest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = {"dimension": "DP", "phase": None, "kind": None, "codec": "fp16"}
    more = {
        "cast-both": ("two-shot", "bf16", [rule]),
        "cast-feedback": ("two-shot", "bf16", [{**rule, "feedback": True}]),
        "above": ("two-shot", "none", [{**rule, "dimension": None, "codec": "zfp:8", "min_bytes": 4096}]),
        "dp-only": ("two-shot", "none", [{**rule, "codec": "zfp:8"}]),
    }
    for name, scheme in more.items():
        monkeypatch.setitem(RULES, name, scheme)
    names = ["baseline", "identity", "naive-bf16", "naive-zfp8", "mzhybrid", *more]
    cell = planted(dict.fromkeys(names, (1.0, 2.5)), pairs=2)
    assert {row.scheme: row.kind for row in cell.rows} == {
        "baseline": SchemeKind.BASELINE,
        "identity": SchemeKind.PLAIN,
        "naive-bf16": SchemeKind.CAST,
        "naive-zfp8": SchemeKind.ONE_CODEC,
        "mzhybrid": SchemeKind.BY_TRAFFIC,
        "cast-both": SchemeKind.CAST,
        "cast-feedback": SchemeKind.BY_TRAFFIC,
        "above": SchemeKind.ONE_CODEC,
        "dp-only": SchemeKind.BY_TRAFFIC,
    }
    assert [item.is_control for item in SchemeKind] == [False, True, True, False, False, False, False]


def test_a_codec_that_never_ran_is_no_evidence(tmp_path: Path) -> None:
    runs = [
        Planted(scheme, k, seconds * (1 + (k % 3) / 1000), 2.7, coded=coded)
        for k in range(1, 7)
        for scheme, seconds, coded in (
            ("baseline", 0.4, None),
            ("naive-bf16", 0.38, 1.0),
            ("naive-zfp8", 0.2, 0.0),
            ("mzhybrid", 0.3, 0.25),
            ("zhybrid-16-8", 0.35, None),
        )
    ]
    sections = read([write(tmp_path / "001", runs)]).sections
    ((_, (cell,)),) = sections
    parts = {row.scheme: row.coded_part for row in cell.rows}
    assert parts == {
        "baseline": None,
        "naive-bf16": 1.0,
        "naive-zfp8": 0.0,
        "mzhybrid": 0.25,
        "zhybrid-16-8": "unknown",
    }, "a log that does not say it has not said that all was coded"
    answer_lines = answer(cell, "local")
    assert answer_lines[0].startswith(
        "Yes. On this machine (gpt-tiny 0.8 M parameters, 12 steps) compression pays. Best: mzhybrid, 1.33 times the"
    )
    assert answer_lines[2].startswith("Also faster, at a loss no worse than the baseline's: zhybrid-16")
    assert not any("naive-zfp8" in sentence for sentence in answer_lines[:3])
    assert any(sentence.startswith("Codec never ran: naive-zfp8. 0 % of the bytes") for sentence in answer_lines)
    assert "naive-zfp8" not in compute_front(cell).schemes
    rows = entries(build(sections), "comparison")
    assert rows["naive-zfp8"]["verdict"].value == "codec never ran: faster, loss no worse"
    assert rows["naive-zfp8"]["verdict"].tone == "warning"
    shown = {name: row["coded_part"].shown for name, row in rows.items()}
    assert shown == {
        "baseline": "-",
        "naive-bf16": "100.0 %",
        "naive-zfp8": "0.0 %",
        "mzhybrid": "25.0 %",
        "zhybrid-16-8": "unknown",
    }
    traffic = entries(build(sections, ["traffic"]), "traffic")
    assert (traffic["mzhybrid"]["coded_part"].value, traffic["mzhybrid"]["coded_part_dp"].value) == (0.25, 0.25)


def test_the_table_of_schemes_has_each_two_once(tmp_path: Path) -> None:
    runs = [
        Planted(scheme, k, seconds * (1 + ((k + i) % 3) / 1000), 2.7)
        for k in range(1, 7)
        for i, (scheme, seconds) in enumerate((("baseline", 0.4), ("naive-bf16", 0.2), ("mzhybrid", 0.3)))
    ]
    document = build(read([write(tmp_path / "001", runs)]).sections, ["schemes"])
    (table,) = tables(document, "schemes")
    shown_rows = [(row[0].shown, row[1].shown, row[3].shown, row[6].shown) for row in table.rows]
    assert shown_rows == [
        ("naive-bf16", "baseline", "faster", "beats it"),
        ("mzhybrid", "baseline", "faster", "beats it"),
        ("naive-bf16", "mzhybrid", "faster", "beats it"),
    ]
    assert table.notes == ("Pareto front (no scheme significantly beats these): naive-bf16.",)
