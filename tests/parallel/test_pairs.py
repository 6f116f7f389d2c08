"""Every pair of values that a study may have, in some run that is compared with one process; see schema_axes.py."""

from itertools import combinations
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from pair_cases import RANKS, Pairs, accepted, cases, completed, few, fewest, grown, pairs_of, part_of, tables, ways
from schema_axes import AXES, DERIVED, FIELDS, NO_AXIS, set_by, unlisted
from test_parity import TOLERANCE, WEIGHT_TOLERANCE

WORKER = Path(__file__).with_name("pair_worker.py")
PAGE = Path(__file__).parents[2] / "docs/explanation/parity.md"
PARTS = {case.name: part for part in RANKS for case in part_of(part)}
NAMES = [name if part == "few" else pytest.param(name, marks=pytest.mark.long) for name, part in sorted(PARTS.items())]


def result_of(mpi_results, name):
    part = PARTS[name]
    (result,) = (result for result in mpi_results(RANKS[part], WORKER, part) if result["name"] == name)
    return result


def assert_same(result):
    for value in ("loss", "norm", "gradients"):
        assert result[value] <= TOLERANCE, f"{value} off by {result[value]:.2e} ({result['worst'].get(value)})"
    for value in ("weights", "evaluation"):
        assert result[value] <= WEIGHT_TOLERANCE, f"{value} off by {result[value]:.2e} ({result['worst'].get(value)})"


@pytest.mark.parametrize("name", NAMES)
def test_trains_as_one_process(mpi_results, name):
    result = result_of(mpi_results, name)
    (case,) = (case for case in cases() if case.name == name)
    assert result["state"] == "completed"
    assert result["steps"] == case.run.train.steps
    assert result["same_tokens"]
    assert result["replicas"] == result["padding"] == 0.0
    if case.exact:
        assert_same(result)
    else:
        assert result["loss"] < 0.05 and result["evaluation"] < 0.05, result


def accepted_settings():
    """What the values of the axes set that a study may have."""
    return [axis.values[label] for name, axis in AXES.items() for label in axis.values if ways({name: label})]


def test_every_field_and_value_of_the_schema_is_on_an_axis_or_listed():
    assert unlisted(FIELDS, accepted_settings()) == []
    axes = set_by(setting for axis in AXES.values() for setting in axis.values.values()).keys()
    assert axes | DERIVED.keys() | NO_AXIS.keys() == FIELDS.keys()
    assert not axes & DERIVED.keys()


def test_a_new_field_and_a_new_value_of_the_schema_are_noticed():
    schema = {**FIELDS, "train.fresh": bool, "train.schedule": Literal["1f1b", "fresh"]}
    assert unlisted(schema, accepted_settings()) == ["train.fresh", "train.schedule: fresh"]


def test_few_cases_have_every_value_and_fit_few_ranks():
    values = {(name, label) for name, axis in AXES.items() for label in axis.values if ways({name: label})}
    assert {value for case in few() for value in case.labels.items()} == values
    assert len(few()) < len(cases()) / 4
    assert max(case.run.ranks for case in few()) <= RANKS["few"]


@pytest.mark.long
def test_every_accepted_pair_is_in_a_case():
    pairs = accepted()
    assert len(pairs) > 4000
    covered = {pair for case in cases() for pair in pairs_of(case.labels)}
    assert pairs.keys() - covered == set()


@pytest.mark.long
def test_a_refused_pair_stays_refused_with_another_value_of_a_third_setting():
    pairs, chance = accepted(), Random(3)
    values = [(name, label) for name, axis in AXES.items() for label in axis.values if ways({name: label})]
    refused = [pair for pair in combinations(values, 2) if pair[0][0] != pair[1][0] and pair not in pairs]
    for one, other in chance.sample(refused, 300):
        third = chance.choice([value for value in values if value[0] not in (one[0], other[0])])
        assert fewest(dict((one, other, third))) is None, (one, other, third)


def test_the_page_lists_the_axes_and_what_is_outside():
    for table in tables():
        assert table in PAGE.read_text(), "print the tables with `python tests/parallel/pair_cases.py tables`"
