"""Tests of each weakness of a comparison, and of speeds over the common steps of a pair."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import cell

from hpcbench.report.answer import answer
from hpcbench.report.sections import read
from hpcbench.report.tables.by_scheme import tabulate_loss
from hpcbench.report.weaknesses import FEW_STEPS, MANY_PAIRS, bound_failures, find_weaknesses, follow_each_other

STEPS = 120


def strong(root: Path, *, pairs: int = 5, steps: int = STEPS) -> Path:
    """Return a study without weaknesses: the loss falls only in the first steps, and each rank has its own core."""
    runs = [
        Planted(scheme, k, seconds * (1 + ((k + i) % 3) / 1000), 2.7 + 0.0001 * i * (k % 2))
        for k in range(1, pairs + 1)
        for i, (scheme, seconds) in enumerate((("baseline", 0.4), ("mzhybrid", 0.3)))
    ]
    write(root, runs, steps=steps)
    for log in root.glob("runs/*/log.txt"):
        text = re.sub(r"\| loss \S+", "| loss 2.7", log.read_text())
        for rank in range(8):
            text = text.replace(f'"pid": {4000 + rank}, "cores": [0, 1]', f'"pid": 1, "cores": [{rank}]')
        log.write_text(text)
    return root


def change(root: Path, old: str, new: str) -> None:
    for log in root.glob("runs/*/log.txt"):
        text = log.read_text()
        assert old in text
        log.write_text(text.replace(old, new))


def share_cores(root: Path) -> None:
    change(root, '"cores": [7]', '"cores": [0]')


def learn_nothing(root: Path) -> None:
    change(root, '"valid_loss_unigram": 3.31', '"valid_loss_unigram": 2.69')


def fall(root: Path) -> None:
    for log in root.glob("runs/*/log.txt"):
        log.write_text(re.sub(r"(step +(1[01][0-9]|120)/.*?\| loss) 2\.7", r"\1 2.5", log.read_text()))


def run_at_once(root: Path) -> None:
    """The job of the second repeat begins half a minute after that of the first, which takes a minute."""
    for path in root.glob("runs/r2-*/status.json"):
        text = path.read_text()
        path.write_text(text.replace("T07:30:00", "T06:30:30").replace("T07:31:00", "T06:31:30"))


def names(root: Path) -> list[str]:
    """Return the weaknesses of the scheme, except `rare_failures`, which all studies with few pairs share."""
    weak = find_weaknesses(cell(root)).names("mzhybrid")
    assert "rare_failures" in weak
    return [name for name in weak if name != "rare_failures"]


def test_a_strong_study_has_no_mark(tmp_path: Path) -> None:
    weak = find_weaknesses(cell(strong(tmp_path, pairs=MANY_PAIRS)))
    assert (weak.reasons, weak.mark("mzhybrid"), weak.sentences) == ((), "", [])


def test_few_pairs_do_not_exclude_rare_failures(tmp_path: Path) -> None:
    """The smallest n with 0.9 ** n <= 5 % is 29. With fewer pairs, a scheme with 10 % failing runs passes too often."""
    assert MANY_PAIRS == 29 and 0.9**29 <= 0.05 < 0.9**28
    root = strong(tmp_path)
    weak = find_weaknesses(cell(root))
    assert weak.names("mzhybrid") == ["rare_failures"]
    assert "29 pairs would reveal this" in weak.sentences[0]
    assert bound_failures(29) < 0.1 < bound_failures(28)
    assert bound_failures(5) == pytest.approx(0.4507, abs=1e-4), "(1 - 0.4507) ** 5 = 5 %"
    assert answer(cell(root), "local")[2] == (
        "With 5 pairs, it cannot be ruled out that up to 45 % of the runs train to a worse loss (95 % confidence)."
    )


def test_a_loss_that_is_as_good_has_the_remark_at_any_speed(tmp_path: Path) -> None:
    """A slower scheme may be chosen for its loss. If all losses are identical, the scheme changed nothing."""
    runs = [
        Planted(scheme, k, seconds * (1 + ((k + i) % 3) / 1000), 2.7 + loss * (1 + k % 2))
        for k in range(1, 6)
        for i, (scheme, seconds, loss) in enumerate(
            (("baseline", 0.4, 0), ("mzhybrid", 0.5, 0.0001), ("naive-mpc", 0.5, 0), ("naive-zfp8", 0.3, 0.5))
        )
    ]
    compared = cell(write(tmp_path, runs, steps=STEPS))
    marked = {row.scheme for row in compared.rows if "rare_failures" in find_weaknesses(compared).names(row.scheme)}
    shown = {row.scheme: row.loss_shown for row in compared.rows[1:]}
    assert shown == {"mzhybrid": "no worse", "naive-mpc": "no worse", "naive-zfp8": "worse"}
    assert marked == {"mzhybrid"}


def test_a_pair_that_failed_is_as_good_only_on_average(tmp_path: Path) -> None:
    """With one pair of 40 worse by 0.1, the interval of the mean is entirely within the margin of 0.027."""
    runs = [
        Planted(scheme, k, seconds * (1 + ((k + i) % 3) / 1000), 2.7 + 0.1 * (scheme == "mzhybrid" and k == 7))
        for k in range(1, 41)
        for i, (scheme, seconds) in enumerate((("baseline", 0.4), ("mzhybrid", 0.3)))
    ]
    ((submission, (compared_cell,)),) = read([write(tmp_path, runs)]).sections
    row = compared_cell.row("mzhybrid")
    assert row is not None and row.loss is not None
    assert (row.loss_shown, row.loss.steady, row.verdict) == (
        "no worse",
        False,
        "faster, loss no worse on average only",
    )
    answer_lines = answer(compared_cell, "local")
    assert answer_lines[0] == (
        "Inconclusive. On this machine (gpt-tiny 0.8 M parameters, 12 steps) it is unclear whether compression pays:"
        " the losses of the faster schemes are no worse on average only."
    )
    assert answer_lines[1] == (
        "Faster, with a loss that is no worse on average only: mzhybrid (1.33 times the baseline's speed, 1.33 to"
        " 1.33; worst pair +0.1000)."
    )
    table = tabulate_loss(submission, compared_cell)
    assert (
        table is not None
        and "mzhybrid is no worse on average only: the difference of its worst pair is +0.1000." in table.notes
    )


def test_repeats_that_follow_each_other_are_marked(tmp_path: Path) -> None:
    """A ratio that drifts over ten repeats causes a warning. The same ratios in another order do not."""
    marked = []
    for k, order in enumerate((range(10), (0, 7, 3, 9, 1, 6, 4, 8, 2, 5))):
        runs = [
            Planted(scheme, repeat, seconds * (1 + 0.01 * place * (scheme == "mzhybrid")), 2.7)
            for repeat, place in enumerate(order, 1)
            for scheme, seconds in (("baseline", 0.4), ("mzhybrid", 0.3))
        ]
        marked.append("correlated_repeats" in find_weaknesses(cell(write(tmp_path / str(k), runs))).names("mzhybrid"))
    assert marked == [True, False]


def test_neighbours_are_called_alike_no_more_often_than_chance_allows() -> None:
    rng = random.Random(3)
    series = [[rng.gauss(0, 1) for _ in range(8)] for _ in range(400)]
    assert 0.01 < sum(map(follow_each_other, series)) / 400 < 0.05 + 2.6 * (0.05 * 0.95 / 400) ** 0.5
    sums = [[sum(item[: k + 1]) for k in range(8)] for item in series]
    assert sum(map(follow_each_other, sums)) / 400 > 0.4, "walks, whose steps are independent"
    assert not follow_each_other([1.0, 2.0, 3.0, 4.0]), "four values have too few orders"
    assert not follow_each_other([1.0] * 8)


@pytest.mark.parametrize(
    ("fault", "name", "message"),
    [
        (share_cores, "shared_cores", "[a] Ranks shared cores"),
        (learn_nothing, "learnt_nothing", "[a] The validation loss of the scheme or of the baseline is no better than"),
        (run_at_once, "other_jobs", "[a] Runs of different jobs of this comparison ran on the same node"),
        (fall, "still_falling", "[a] The baseline's training loss still fell"),
    ],
)
def test_each_weakness_is_found(tmp_path: Path, fault: Callable[[Path], None], name: str, message: str) -> None:
    root = strong(tmp_path)
    fault(root)
    weak = find_weaknesses(cell(root))
    assert (weak.names("mzhybrid"), weak.mark("mzhybrid")) == ([name, "rare_failures"], "[ab]")
    assert weak.sentences[0].startswith(message)
    assert weak.sentences[0] in answer(cell(root), "local")


def test_few_pairs_and_few_steps(tmp_path: Path) -> None:
    assert names(strong(tmp_path / "1", pairs=4)) == ["few_pairs"]
    assert names(strong(tmp_path / "2", steps=FEW_STEPS + 1)) == ["few_steps"], "two of the steps are the warm-up"
    assert names(strong(tmp_path / "3", steps=FEW_STEPS + 2)) == []


def test_jobs_on_other_nodes_or_after_each_other_disturb_nothing(tmp_path: Path) -> None:
    root = strong(tmp_path)
    run_at_once(root)
    for log in root.glob("runs/r2-*/log.txt"):
        log.write_text(log.read_text().replace('"host": "n1"', '"host": "n2"'))
    assert names(root) == []


def test_cores_that_may_be_shared_and_are_not(tmp_path: Path) -> None:
    """The site allows shared cores, but the ranks report their own cores."""
    root = strong(tmp_path)
    assert '"oversubscribe": true' in (root / "runs/r1-mzhybrid/log.txt").read_text()
    assert names(root) == []
    change(root, '"threads": 1}, {"rank": 1', '"threads": 2}, {"rank": 1')
    assert names(root) == ["shared_cores"]


@pytest.mark.parametrize("oversubscribe", ["true", "false"])
def test_virtual_hosts_of_one_machine_share_its_cores(tmp_path: Path, oversubscribe: str) -> None:
    """Four hosts run two ranks each, with equal core numbers. On one machine, eight ranks would share two cores."""
    root = strong(tmp_path)
    change(root, '"oversubscribe": true', f'"oversubscribe": {oversubscribe}')
    for log in root.glob("runs/*/log.txt"):
        text = log.read_text()
        for rank in range(8):
            text = text.replace(
                f'"host": "n1", "pid": 1, "cores": [{rank}]',
                f'"host": "h{rank // 2}", "machine": "kernel {rank // 2}", "pid": 1, "cores": [0, 1]',
            )
        log.write_text(text)
    assert names(root) == []
    for log in root.glob("runs/*/log.txt"):
        log.write_text(re.sub(r'"machine": "kernel \d"', '"machine": "kernel"', log.read_text()))
    assert names(root) == ["shared_cores"]


def test_logs_that_name_no_machine_are_of_one_on_the_site_of_virtual_hosts(tmp_path: Path) -> None:
    root = strong(tmp_path)
    for log in root.glob("runs/*/log.txt"):
        text = log.read_text()
        for rank in range(8):
            text = text.replace(f'"host": "n1", "pid": 1, "cores": [{rank}]', f'"host": "h{rank}", "cores": [0, 1]')
        log.write_text(text)
    assert names(root) == []
    change(root, '"site": "local"', '"site": "virtual-hosts"')
    assert names(root) == ["shared_cores"]


def test_a_model_that_has_learnt_nothing_is_not_praised_for_its_loss(tmp_path: Path) -> None:
    root = strong(tmp_path)
    assert ", no worse within the margin of 1 %." in answer(cell(root), "local")[0]
    learn_nothing(root)
    assert answer(cell(root), "local")[0].endswith("), but is not informative (see below).")


def slow_after(log: Path, last: int) -> None:
    """Make all steps after a given step take three times as long."""
    lines = []
    for line in log.read_text().splitlines(keepends=True):
        step = re.match(r"step +(\d+)/", line)
        lines.append(line.replace("time 0.400000 s", "time 1.200000 s") if step and int(step[1]) > last else line)
    log.write_text("".join(lines))


def longer_warm_up(log: Path) -> None:
    log.write_text(log.read_text().replace('"warmup_steps": 2', '"warmup_steps": 40'))


def cut(log: Path) -> None:
    """Remove the last lines of a log, except the line of the last step."""
    log.write_text(re.sub(r"(?m)^step 5[0-9]/.*\n", "", log.read_text()))


@pytest.mark.parametrize(
    ("fault", "last", "means"),
    [
        (longer_warm_up, 40, [(38 * 0.4 + 20 * 1.2) / 58, 1.2]),
        (cut, 28, [(26 * 0.4 + 32 * 1.2) / 58, (26 * 0.4 + 22 * 1.2) / 48]),
    ],
    ids=["longer warm-up", "cut"],
)
def test_the_speed_of_a_pair_is_of_the_steps_that_both_counted(
    tmp_path: Path, fault: Callable[[Path], None], last: int, means: list[float]
) -> None:
    """One run of a pair lacks steps that the other run contains. The common steps of both runs are equally fast."""
    runs = [Planted(scheme, k, 0.4, 2.7) for k in (1, 2) for scheme in ("baseline", "mzhybrid")]
    root = write(tmp_path, runs, steps=60, warmup=2)
    for log in root.glob("runs/*/log.txt"):
        slow_after(log, last)
    fault(root / "runs/r1-mzhybrid/log.txt")
    compared_cell = cell(root)
    base, row = compared_cell.row("baseline"), compared_cell.row("mzhybrid")
    assert base is not None and row is not None and row.speed is not None
    times = [base.runs[0].step_seconds or 0, row.runs[0].step_seconds or 0]
    assert times == pytest.approx(means), "their own times differ"
    assert row.speed.estimate == pytest.approx(1.0, rel=1e-6)
    assert "other_steps" in find_weaknesses(compared_cell).names("mzhybrid")


def test_runs_without_a_step_in_common_are_no_pair(tmp_path: Path) -> None:
    runs = [Planted(scheme, k, 0.4, 2.7) for k in (1, 2) for scheme in ("baseline", "mzhybrid")]
    root = write(tmp_path, runs, steps=40, warmup=2)
    for log in root.glob("runs/*/log.txt"):
        odd = "mzhybrid" in str(log)
        kept_files = [
            line
            for line in log.read_text().splitlines(keepends=True)
            if not (step := re.match(r"step +(\d+)/", line)) or int(step[1]) % 2 == odd
        ]
        log.write_text("".join(kept_files))
    row = cell(root).row("mzhybrid")
    assert row is not None and row.speed is None
    assert row.verdict == "not compared (no pair with the baseline)"


def test_programs_read_weaknesses_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hpcbench.report.main import report

    root = strong(tmp_path, pairs=4)
    report([root], "json")
    (selected,) = json.loads(capsys.readouterr().out)["submissions"][0]["cells"]
    assert list(selected["weaknesses"]) == ["few_pairs", "rare_failures"]
    row = selected["schemes"][1]
    assert (row["weaknesses"], row["kind"], row["beaten_by"]) == (["few_pairs", "rare_failures"], "by_traffic", [])
    assert (selected["front"], selected["simplest"]) == (["mzhybrid"], ["mzhybrid"])
    (duel,) = selected["duels"]
    assert (duel["scheme"], duel["other"], duel["speed"], duel["beats"]) == ("mzhybrid", "baseline", "faster", True)
    report([root], "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    selected = [[row[name] for name in ("kind", "beaten_by", "weaknesses")] for row in rows]
    assert selected == [["baseline", '["mzhybrid"]', ""], ["by_traffic", "[]", "few_pairs rare_failures"]]
