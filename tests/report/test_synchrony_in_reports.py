"""Tests of synchronization methods in reports: time to a loss, waiting and staleness, computed by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_ways import Run, planted
from report_tables import entries, tables

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import Submission
from hpcbench.contract.events import Staleness, StalenessOf
from hpcbench.report.build import DEFAULT, build
from hpcbench.report.compare import Cell
from hpcbench.report.export import STALENESS
from hpcbench.report.export.rows import rows
from hpcbench.report.formats.json_document import content
from hpcbench.report.quantities.staleness import STALENESS_MEAN, STALENESS_MOST, WAITING, count_ages
from hpcbench.report.synchrony import Arm, list_arms
from hpcbench.report.time_to_loss import find_first_time

FLUSHED = {"train.schedule": "1f1b", "layout.pp": 2}
FREE = {"train.schedule": "pipedream", "layout.pp": 2}
TOGETHER = {"layout.dp": 2}
ALONE = {"train.sync": "asp", "layout.dp": 2}
REFERENCE = Run(FLUSHED, seconds=2.0, valid={2: 3.0, 4: 2.0}, stages=[(3.0, 0.0), (3.0, 1.0)])
FASTER = Run(
    FREE, valid={2: 3.5, 4: 1.5}, stages=[(4.0, 0.0), (4.0, 0.0)], ages=[{"0": 1, "1": 3}, {"0": 4}]
)  # 2.0 is three quarters of the way from 2 s to 4 s


def arm(runs: list[Run], way: str, *, margin: float = 0.0, scheme: str = "baseline") -> Arm:
    _, cells = planted(runs, margin=margin)
    (mode_arm,) = [mode for mode in list_arms(cells, margin) if (mode.way.name, mode.scheme) == (way, scheme)]
    return mode_arm


def test_time_to_a_loss_lies_on_the_line_between_two_evaluations() -> None:
    mode_arm = arm([REFERENCE, FASTER], "pipedream")
    assert (mode_arm.against, mode_arm.pairs, mode_arm.reached, mode_arm.state) == ("1f1b", 1, 1, "reached")
    assert (mode_arm.target, mode_arm.basis, mode_arm.seconds) == (2.0, "validation", 3.5)
    assert mode_arm.time_ratio and mode_arm.time_ratio.estimate == pytest.approx(3.5 / 8)
    assert mode_arm.loss and mode_arm.loss.estimate == -0.5
    reference = arm([REFERENCE, FASTER], "1f1b")
    assert (reference.state, reference.time_ratio, reference.parts) == ("reference", None, {0: 1.0})


def test_the_margin_lies_on_top_of_the_loss_in_both_runs() -> None:
    mode_arm = arm([REFERENCE, FASTER], "pipedream", margin=0.25)  # 2.5: 3 s, and 6 s of the reference
    assert mode_arm.target == 2.5
    assert mode_arm.time_ratio and mode_arm.time_ratio.estimate == pytest.approx(3 / 6)


def test_a_loss_that_is_not_reached_is_a_state_of_its_own() -> None:
    never = replace(FASTER, valid={2: 3.5, 4: 2.5})
    mode_arm = arm([REFERENCE, never], "pipedream")
    assert (mode_arm.state, mode_arm.reached, mode_arm.pairs, mode_arm.time_ratio, mode_arm.seconds) == (
        "not reached",
        0,
        1,
        None,
        None,
    )
    assert mode_arm.loss and mode_arm.loss.estimate == pytest.approx(0.5)


def test_pairs_are_of_one_seed_and_a_run_that_diverged_has_not_reached_the_loss() -> None:
    """The second reference reaches a loss of 4.0 after 4 s.

    Each run is compared with the reference that has the same seed.
    """
    other = replace(REFERENCE, repeat=2, seconds=1.0, valid={2: 6.0, 4: 4.0})
    later = replace(FASTER, repeat=2, valid={2: 4.0, 4: 3.0})
    mode_arm = arm([REFERENCE, other, FASTER, later], "pipedream")
    assert mode_arm.time_ratio and mode_arm.time_ratio.estimate == pytest.approx(math.sqrt(3.5 / 8 * 2 / 4))
    assert mode_arm.time_ratio.pairs == 2 and mode_arm.time_ratio.low and mode_arm.time_ratio.low < 0.46

    lost = arm([REFERENCE, other, FASTER, replace(later, state="nan", losses=(5.0, math.nan))], "pipedream")
    assert (lost.state, lost.reached, lost.pairs) == ("reached in part", 1, 2)
    assert lost.time_ratio and lost.time_ratio.estimate == pytest.approx(3.5 / 8)
    assert arm([REFERENCE, replace(FASTER, state="nan")], "pipedream").state == "not reached"
    assert arm([REFERENCE, replace(FASTER, state="failed")], "pipedream").state == "unknown"
    assert arm([REFERENCE, replace(FASTER, repeat=2)], "pipedream").state == "unknown"


def test_training_losses_serve_where_a_run_has_no_evaluations() -> None:
    """Losses are averaged over a twentieth of the steps, here two of 40.

    The mean of the reference's last two losses is 1.5.
    """
    falling = [float(40 - k) for k in range(40)]
    slow = Run(TOGETHER, seconds=1.0, losses=falling, valid={40: 9.0})
    fast = Run(ALONE, seconds=0.5, losses=falling, valid={20: 9.0, 40: 9.0})
    mode_arm = arm([slow, fast], "asp")
    assert (mode_arm.against, mode_arm.basis, mode_arm.target, mode_arm.seconds) == (
        "all-reduce",
        "training",
        1.5,
        20.0,
    )
    assert mode_arm.time_ratio and mode_arm.time_ratio.estimate == pytest.approx(0.5)


def test_lines_end_at_losses_that_are_no_numbers() -> None:
    assert find_first_time([(1.0, 9.0), (2.0, math.nan), (3.0, 1.0)], 2.0) == 3.0
    assert find_first_time([(1.0, 9.0), (3.0, 1.0)], 5.0) == 2.0
    assert find_first_time([(1.0, 4.0)], 5.0) == 1.0
    assert find_first_time([(1.0, 9.0), (2.0, math.inf)], 5.0) is None
    assert find_first_time([], 5.0) is None


def test_waiting_is_idle_between_stages_and_all_but_the_passes_between_replicas() -> None:
    mode_arm = arm([REFERENCE, FASTER], "pipedream")
    assert (mode_arm.waiting, arm([REFERENCE, FASTER], "1f1b").waiting) == (0.0, 0.25)
    assert mode_arm.waiting_change and mode_arm.waiting_change.estimate == -0.25
    replicas = [Run(TOGETHER, stages=[(2.0, 0.0)]), Run(ALONE, stages=[(3.0, 0.5)])]
    assert arm(replicas, "all-reduce").waiting == pytest.approx(0.25 / 2.25)
    assert arm(replicas, "asp").waiting == pytest.approx(0.75 / 3.75)


def test_gradients_are_counted_by_staleness_over_places_and_completed_runs() -> None:
    mode_arm = arm([REFERENCE, FASTER, replace(FASTER, repeat=2, ages=[{"3": 8}])], "pipedream")
    assert mode_arm.ages and mode_arm.ages.counts == {0: 5, 1: 3, 3: 8}
    assert mode_arm.parts == {0: 5 / 16, 1: 3 / 16, 3: 0.5}
    _, cells = planted([FASTER])
    (run,) = cells[0].runs
    assert (STALENESS_MEAN.compute(run), STALENESS_MOST.compute(run), WAITING.compute(run)) == (3 / 8, 1, 0.0)


@pytest.mark.parametrize("counts", [{"-1": 2}, {"x": 1}, {"1": -1}, {"1": True}, {"1": 1.5}, {"1": "2"}, {"0": 0}, {}])
def test_nonsense_is_no_staleness(counts: dict[str, Any]) -> None:
    log = RunLog(Path("log.txt"))
    log.events.append(Staleness(of="stage", places=(StalenessOf(place=0, counts=counts),)))
    assert count_ages(log) is None


def test_only_runs_that_differ_in_nothing_else_are_compared() -> None:
    longer = replace(FASTER, cell={**FREE, "layout.tp": 2})
    slower = replace(REFERENCE, cell={**FLUSHED, "layout.tp": 2}, seconds=4.0)
    _, cells = planted([REFERENCE, FASTER, longer, slower])
    mode_arm = {(mode.way.name, mode.group): mode for mode in list_arms(cells, 0.0) if mode.against}
    assert {key: mode.time_ratio.estimate for key, mode in mode_arm.items() if mode.time_ratio} == {
        ("pipedream", ""): pytest.approx(3.5 / 8),
        ("pipedream", "tp 2"): pytest.approx(3.5 / 16),
    }
    assert not [mode for mode in list_arms(planted([REFERENCE, replace(longer)])[1], 0.0) if mode.against]


def test_without_a_way_that_waits_there_is_no_reference() -> None:
    late = replace(FASTER, cell={**FREE, "train.vertical_sync": True})
    _, cells = planted([FASTER, late])
    assert [(mode.against, mode.state, mode.time_ratio) for mode in list_arms(cells, 0.0)] == [
        (None, "unknown", None)
    ] * 2
    chunked = replace(REFERENCE, cell={**FLUSHED, "train.schedule": "interleaved", "layout.chunks": 2})
    mode_arm = arm([chunked, FASTER], "pipedream")
    assert (mode_arm.against, mode_arm.state) == ("interleaved x 2", "reached")


def test_schemes_are_compared_with_the_same_scheme() -> None:
    coded = [replace(item, scheme="int8", seconds=item.seconds / 2) for item in (REFERENCE, FASTER)]
    mode_arm = arm([REFERENCE, FASTER, coded[0], replace(coded[1], seconds=0.25)], "pipedream", scheme="int8")
    assert mode_arm.time_ratio and mode_arm.time_ratio.estimate == pytest.approx(0.25 * 3.5 / 4)


def many() -> tuple[Submission, list[Cell]]:
    late = Run({**FREE, "train.vertical_sync": True}, valid={2: 4.0, 4: 3.0})
    bounded = Run({"train.sync": "ssp", "train.staleness": 3, "layout.dp": 2})
    runs = [REFERENCE, FASTER, late, Run(TOGETHER), Run(ALONE, ages=[{str(age): 1 for age in range(12)}]), bounded]
    return planted([replace(run, repeat=repeat) for run in runs for repeat in (1, 2)], margin=0.01)


def test_a_report_has_the_table_unasked() -> None:
    submission, cells = many()
    document = build([(submission, cells)], DEFAULT)
    table_rows = entries(document, "synchrony")
    assert list(table_rows) == ["1f1b", "pipedream", "pipedream, vertical sync", "all-reduce", "asp", "ssp(3)"]
    assert table_rows["pipedream"]["time_to_loss_ratio"].shown.startswith("0.44 (0.44 to 0.44)")
    assert table_rows["pipedream"]["reached"].shown == "2 of 2"
    late = table_rows["pipedream, vertical sync"]
    assert (late["time_to_loss_ratio"].shown, late["time_to_loss_ratio"].tone) == ("not reached", "bad")
    assert (late["reached"].shown, late["reached"].value) == ("0 of 2", "not reached")
    assert (table_rows["pipedream"]["waiting_part"].shown, table_rows["1f1b"]["waiting_part"].shown) == (
        "0.0 %",
        "25.0 %",
    )
    assert table_rows["pipedream"]["waiting_change"].shown == "-25.0 % (-25.0 % to -25.0 %)"
    assert table_rows["1f1b"]["reached"].shown == "reference"
    assert table_rows["asp"]["staleness_mean"].value == 5.5 and table_rows["asp"]["staleness_most"].value == 11
    notes = tables(document, "synchrony")[0].notes
    assert notes[0].startswith(
        "Reference: 1f1b and all-reduce, in which all ranks wait for each other. For each seed, the loss to reach is"
        " the reference's last"
    )
    assert "plus 1.0 %" in notes[0]
    assert "pipedream, pp 2, baseline: gradients by staleness: 0: 62.5 %, 1: 37.5 %." in notes
    (asp,) = (note for note in notes if note.startswith("asp"))
    assert asp.endswith("7: 8.3 %, 8 to 11: 33.3 %.")
    (submission_data,) = content([(submission, cells)])["submissions"]
    rows = {row["way"]: row for row in submission_data["synchrony"]}
    assert rows["pipedream, vertical sync"]["state"] == "not reached" and rows["1f1b"]["staleness"] == {"0": 1.0}
    assert json.dumps(rows)


def test_a_study_in_which_all_wait_has_no_such_table() -> None:
    submission, cells = planted([REFERENCE, replace(REFERENCE, cell={**FLUSHED, "train.schedule": "gpipe"})])
    assert list_arms(cells, 0.0) == [] and not entries(build([(submission, cells)], DEFAULT), "synchrony")


def test_the_export_has_a_row_for_each_place_and_staleness() -> None:
    submission, _ = planted([FASTER, REFERENCE])
    selected = [
        dict(zip(STALENESS.names, row, strict=True))
        for run in submission.runs
        for row in rows(STALENESS, submission, run)
    ]
    shown_rows = [
        (row["of"], row["place"], row["versions"], row["staleness"], row["gradients"], row["line"]) for row in selected
    ]
    assert shown_rows == [("stage", 0, None, 0, 1, 92), ("stage", 0, None, 1, 3, 92), ("stage", 1, None, 0, 4, 92)]
