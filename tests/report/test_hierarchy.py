"""Tests of the significance level that all questions of a report share: shares, order, and simulated false findings."""

import random
import sys
from collections.abc import Hashable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.report.compare import ComparedRuns, compare, compare_all
from hpcbench.report.hierarchy import LEVEL, Allotment, Chain, Chains, Question, Shares, ask, ask_family, divide_level
from hpcbench.report.looks import LOOKS
from hpcbench.report.significance import holm

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from simulated.reports import NULL, TRUTHS, FalseFindings, draw_runs
from simulated.studies import CRITERIA

OPEN, SIDE, WHOLE = Question(1.0, 1.0), Question(0.0, 1.0), Question(0.0, 0.0)
"""An undecided question, a partly decided question, and a question that is decided with any share."""


def drawn(rng: random.Random) -> Question:
    side = rng.choice([0.0, 1e-5, 1e-3, 0.01, 0.02, 1.0]) * rng.random()
    return Question(side, side + rng.choice([0.0, 1e-3, 0.1, 1.0]) * rng.random())


def drawn_chain(rng: random.Random) -> Chain:
    speed, loss = (drawn(rng) if rng.random() < 0.9 else None for _ in range(2))
    return Chain(
        speed, loss and Question(loss.complete, loss.complete), tuple(drawn(rng) for _ in range(rng.randint(0, 2)))
    )


def drawn_cells(rng: random.Random) -> list[Chains]:
    def family(most: int) -> dict[object, Chain]:
        return {k: drawn_chain(rng) for k in range(rng.randint(0, most))}

    return [Chains(family(5), family(2), family(6), family(4)) for _ in range(rng.randint(1, 4))]


def held(chain: Chain, shares: Shares) -> float:
    """Return the total share of the undecided questions of a chain, which pass no share on."""
    amount = 0.0
    loss_open = chain.loss is not None and not chain.loss.complete < shares.loss
    if chain.speed is not None:
        passes = 1.0 if chain.speed.complete < shares.speed else 0.5 if chain.speed.side < shares.speed else 0.0
        amount += shares.speed * (1 - passes)
    if loss_open:
        amount += shares.loss
    return amount + sum(g for g, gain in zip(shares.gains, chain.gains, strict=True) if not gain.side < g)


def test_no_more_than_the_level_is_in_use() -> None:
    """For any data, the undecided questions together use at most the full significance level."""
    rng = random.Random(1)
    for _ in range(300):
        cells = drawn_cells(rng)
        total = sum(
            held(chains[key], shares[key])
            for cell, allotment in zip(cells, divide_level(cells), strict=True)
            for chains, shares in zip(families(cell), families(allotment), strict=True)
            for key in chains
        )
        assert total <= LEVEL * (1 + 1e-12)


def test_nothing_is_lost_when_more_is_decided() -> None:
    """The procedure is valid because the shares of undecided questions grow with the number of decided questions."""
    rng = random.Random(2)
    undecided = 0
    for _ in range(300):
        cells = drawn_cells(rng)
        decided = [
            Chains(*({k: decide_some(rng, c) for k, c in family.items()} for family in families(cell)))
            for cell in cells
        ]
        for cell, more, before, after in zip(cells, decided, divide_level(cells), divide_level(decided), strict=True):
            for old, new, given, now in zip(*map(families, (cell, more, before, after)), strict=True):
                for key in old:
                    if old[key] == new[key]:
                        for (question, share), (_, later) in zip(
                            asked(old[key], given[key]), asked(new[key], now[key]), strict=True
                        ):
                            assert later >= share * (1 - 1e-12) or question.complete < later
                            undecided += not question.complete < share
    assert undecided > 1000


def families(cell: Chains | Allotment) -> list[dict[Hashable, Any]]:
    return [dict(getattr(cell, field.name)) for field in fields(cell)]


def decide_some(rng: random.Random, chain: Chain) -> Chain:
    if rng.random() < 0.6:
        return chain
    return replace(chain, speed=chain.speed and WHOLE, loss=chain.loss and WHOLE)


def asked(chain: Chain, shares: Shares) -> list[tuple[Question, float]]:
    """Return the questions of a chain, each with its share."""
    all_of_them = [(chain.speed, shares.speed), (chain.loss, shares.loss), *zip(chain.gains, shares.gains, strict=True)]
    return [(question, share) for question, share in all_of_them if question is not None]


def test_equal_chains_of_one_question_are_holms_method() -> None:
    rng = random.Random(3)
    for _ in range(200):
        p = [rng.random() ** 4 for _ in range(rng.randint(1, 8))]
        adjusted = [p_value for (p_value,) in holm([[value] for value in p])]
        asked = ask_family({k: Chain(loss=Question(value, value)) for k, value in enumerate(p)}, LEVEL)
        assert [shares.finished for shares in asked.values()] == [value < LEVEL for value in adjusted]


@pytest.mark.parametrize(
    ("speed", "loss", "shares"),
    [
        (OPEN, OPEN, (0.75, 0.25, 0.0)),
        (OPEN, WHOLE, (1.0, 0.25, 0.0)),
        (SIDE, OPEN, (0.75, 0.625, 0.0)),
        (SIDE, WHOLE, (1.0, 0.25, 0.5)),
        (WHOLE, OPEN, (0.75, 1.0, 0.0)),
        (WHOLE, WHOLE, (1.0, 0.25, 1.0)),
        (None, OPEN, (0.0, 1.0, 0.0)),
        (SIDE, None, (1.0, 0.0, 0.5)),
    ],
)
def test_the_order_within_a_chain(speed: Question | None, loss: Question | None, shares: tuple[float, ...]) -> None:
    answers = ask(Chain(speed, loss, (OPEN,)), 1.0)
    assert (answers.speed, answers.loss, *answers.gains) == shares and not answers.finished
    assert ask(Chain(speed, loss, (WHOLE,)), 1.0).finished == (loss in (WHOLE, None) and speed in (WHOLE, None))


def test_the_answers_of_all_cells_come_first() -> None:
    """Details receive a share when one answer of their cell is decided, and the whole level when all are decided."""
    detail = {"a": Chain(OPEN, OPEN)}
    waiting = Chains({"x": Chain(OPEN, OPEN)}, duels=detail)
    decided = Chains({"x": Chain(WHOLE, WHOLE)}, duels=detail)
    first, second = divide_level([waiting, decided])
    assert first.answers["x"].speed == pytest.approx(0.75 * LEVEL / 2 * 1.5), "half of what the decided answer had"
    assert first.duels["a"].speed == 0
    assert second.duels["a"].speed == pytest.approx(0.75 * LEVEL / 4)
    assert divide_level([decided])[0].duels["a"].speed == pytest.approx(0.75 * LEVEL)
    assert divide_level([Chains(duels=detail)])[0].duels["a"].speed == pytest.approx(0.75 * LEVEL), (
        "a cell without an answer"
    )
    assert divide_level([]) == []


def most(reports: int) -> float:
    """Return the allowed number of false reports: 5 %, plus an excess that is reached by chance in one of 200 tries."""
    return 0.05 * reports + 2.6 * (0.05 * 0.95 * reports) ** 0.5


@pytest.mark.parametrize(
    ("truth", "cells", "pairs", "reports"),
    [
        ("nothing differs", 1, 5, 80),
        ("nothing differs", 9, 3, 15),
        ("controls gain, codecs gain nothing beyond", 1, 8, 40),
        ("at the margins", 1, 8, 40),
        ("gains, at a loss at the margin", 1, 3, 40),
    ],
)
def test_whole_reports_of_known_truth(truth: str, cells: int, pairs: int, reports: int) -> None:
    """With one family per question, 12 % of the first kind of report and 67 % of the second had a false finding."""
    rng = random.Random(f"{truth} {cells} {pairs}")
    count = FalseFindings()
    for _ in range(reports):
        count.add(compare(draw_runs(rng, pairs, TRUTHS[truth], cells=cells), "baseline", CRITERIA), TRUTHS[truth])
    assert count.some <= most(reports)


def test_reading_a_growing_study_again_adds_no_false_findings() -> None:
    """If every report used the full significance level, a quarter of the studies would contain a false finding."""
    rng, false, reports = random.Random(11), 0, 40
    for _ in range(reports):
        runs = draw_runs(rng, 12)
        looks = [compare(runs[: 7 * look], "baseline", CRITERIA) for look in LOOKS if look <= 12]
        false += any(FalseFindings().add(cells, NULL) for cells in looks)
    assert false <= most(reports)


def test_what_pays_is_found_with_three_pairs() -> None:
    """A shared level keeps enough power to find gains of 1.3 and more, with a scatter of 1 % between runs."""
    rng, truth = random.Random(12), TRUTHS["gains of 1.3 to 1.6"]
    rows = [
        row
        for _ in range(30)
        for cell in compare(draw_runs(rng, 3, truth), "baseline", CRITERIA)
        for row in cell.rows[2:]
    ]
    assert sum(row.speed_shown == "faster" for row in rows) > 0.95 * len(rows)
    assert sum(row.verdict == "faster, loss no worse" for row in rows) > 0.45 * len(rows)


def test_studies_of_one_report_share_the_level() -> None:
    rng = random.Random(13)
    study = ComparedRuns(draw_runs(rng, 3), "baseline", CRITERIA)
    ((alone,),) = compare_all([study])
    (first,), (_,) = compare_all([study, study])
    levels = [row.speed.equal.level for cell in (alone, first) if (row := cell.rows[2]).speed and row.speed.equal]
    assert levels[1] == pytest.approx(levels[0] / 2)
