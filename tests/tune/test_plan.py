"""Tests of the plan of a study: pruning by predicted time, scheme names, and rounds on this machine."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.cli import app
from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.tune.candidates import choose_run, make_scheme, name_combination
from hpcbench.tune.losses import measure_error
from hpcbench.tune.prune import ALGORITHM, SearchPlan, plan_study
from hpcbench.tune.rounds import list_sets, run_round, submit_once

STUDY = """\
study: tiny
site: {site}
model: {{layers: 2, hidden: 32, heads: 2, vocab: 256}}
data: {{source: stdlib}}
train: {{steps: 3, warmup_steps: 1, global_batch: 4, micro_batch: 2, seq_len: 16, precision: fp32, zero: 0}}
layout: {{dp: 2}}
matrix: {{scheme: [baseline]}}
"""
SLOW = Path(__file__).parents[2] / "studies" / "neox-hybrid.yaml"


def _plan(path: Path, sets: list[str]) -> SearchPlan:
    loaded = load_study(path, sets)
    site, _ = load_site(str(loaded.study.site), "test")
    runs = expand(loaded, site.capacity, offer(site))
    return plan_study(choose_run(runs, loaded), site, path.parent, measured=None, budget=0.01)


def _write(directory: Path) -> Path:
    path = directory / "tiny.yaml"
    path.write_text(STUDY.format(site="local"))
    return path


def test_nothing_pays_within_a_node(tmp_path: Path) -> None:
    plan = _plan(_write(tmp_path), [])
    assert not plan.can_pay and plan.best_gain is not None and plan.best_gain < 0.03
    assert {each.dimension for each in plan.pruned} == {"DP"}
    assert any("is assumed" in note for note in plan.notes)


def test_predicted_times_of_combinations_add_up(tmp_path: Path) -> None:
    plan = _plan(_write(tmp_path), [])
    control_sum = plan.combinations["naive-int8"]
    parts = {each.codec: each.seconds for each in plan.options["DP"]}
    assert control_sum.seconds == pytest.approx(plan.options[ALGORITHM][0].seconds + parts["int8:256"])


def test_names_and_schemes_of_combinations() -> None:
    codecs = {"DP": "int8:256", "TP": "none", "PP": "bf16"}
    assert name_combination(codecs) == "dp-int8-256-pp-bf16"
    rules = make_scheme(codecs).rules
    assert [(rule.dimension, rule.codec) for rule in rules] == [("DP", "int8:256"), ("PP", "bf16")]


def test_errors_of_codecs_are_measured() -> None:
    assert measure_error("none") == 0 < measure_error("bf16") < measure_error("int8:256") < measure_error("int4:64") < 1


def test_a_matrix_of_several_cells_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path)
    loaded = load_study(path, ["matrix.train.micro_batch=[1, 2]"])
    site, _ = load_site("local", "test")
    with pytest.raises(UserError, match=r"matrix.train.micro_batch: tune searches only one cell"):
        choose_run(expand(loaded, site.capacity, offer(site)), loaded)


def test_the_command_shows_its_plan(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["tune", str(_write(tmp_path)), "--loss-budget", "1%", "--dry-run", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0 and "Nothing can pay here" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_round_is_submitted_once(tmp_path: Path) -> None:
    study, base = _write(tmp_path), tmp_path / "round-01"
    codecs = {"DP": "bf16"}
    names = ["baseline", name_combination(codecs)]
    sets = list_sets(names, {names[1]: make_scheme(codecs)}, seed_key="train.seed", seed=5, sets=[])
    result = run_round(study, None, sets, base, nodes=1)
    assert result is not None and set(result.outcomes) == set(names)
    assert all(outcome.is_complete for outcome in result.outcomes.values()) and result.node_hours > 0
    assert submit_once(study, None, sets, base) == base / "001"
    assert run_round(study, None, sets, base, nodes=1) == result
    assert [path.name for path in base.iterdir() if path.name.isdecimal()] == ["001"]
