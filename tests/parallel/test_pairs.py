"""Tests that every valid pair of values occurs in a run that is compared with one process (see schema_axes.py)."""

from itertools import combinations
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from labels import fewest_ranks
from pair_cases import PARTS, cases, parts, tables
from pair_search import pairs_of, values
from schema_axes import AXES, DERIVED, FIELDS, NO_AXIS, set_by, unlisted
from test_parity import TOLERANCE, WEIGHT_TOLERANCE

WORKER = Path(__file__).with_name("pair_worker.py")
PAGE = Path(__file__).parents[2] / "docs/reference/pairs.md"
PART_OF = {case.name: part for part in PARTS for case in parts()[part]}
NAMES = [name if part == "few" else pytest.param(name, marks=pytest.mark.long) for name, part in PART_OF.items()]


def find_result(mpi_results, name):
    part = PART_OF[name]
    (result,) = (result for result in mpi_results(PARTS[part], WORKER, part) if result["name"] == name)
    return result


def assert_same(result):
    for value, tolerance in (
        *((value, TOLERANCE) for value in ("loss", "norm", "gradients")),
        *((value, WEIGHT_TOLERANCE) for value in ("weights", "evaluation")),
    ):
        assert result[value] <= tolerance, f"{value} off by {result[value]:.2e} ({result['worst'].get(value)})"


@pytest.mark.parametrize("name", NAMES)
def test_trains_like_one_process(mpi_results, name):
    result = find_result(mpi_results, name)
    (case,) = (case for case in cases() if case.name == name)
    assert result["state"] == "completed"
    assert result["steps"] == case.run.train.steps
    assert result["same_tokens"]
    assert result["replicas"] == result["padding"] == 0.0
    if case.exact:
        assert_same(result)
    else:
        assert result["loss"] < 0.01
        # 1-bit Adam divides by the variance of one step, so small errors in momenta cause large errors in weights
        assert result["evaluation"] < 0.02 or case.run.train.optimizer == "onebit-adam"
        assert result["norm"] < 0.05 or case.labels["scheme"] == "signs"


def settings():
    """Return the settings of all valid values."""
    return [AXES[axis].values[label] for axis, label in values()]


def test_every_field_and_value_of_the_schema_is_on_an_axis_or_listed():
    assert unlisted(FIELDS, settings()) == []
    axes = set_by(settings()).keys()
    assert axes | DERIVED.keys() | NO_AXIS.keys() == FIELDS.keys()
    assert not axes & DERIVED.keys()


def test_a_new_field_and_a_new_value_of_the_schema_are_noticed():
    schema = {**FIELDS, "train.fresh": bool, "train.schedule": Literal["1f1b", "fresh"]}
    assert unlisted(schema, settings()) == ["train.fresh", "train.schedule: fresh"]


def test_make_test_has_every_value():
    assert {value for case in parts()["few"] for value in case.labels.items()} == set(values())
    assert len(parts()["few"]) < len(cases()) / 4
    assert len(PART_OF) == len(cases())


def list_other_pairs():
    """Return the pairs of values that no case contains."""
    tested = {pair for case in cases() for pair in pairs_of(case.labels)}
    assert len(tested) > 4000
    return [pair for pair in combinations(values(), 2) if pair[0][0] != pair[1][0] and pair not in tested]


@pytest.mark.long
def test_every_accepted_pair_is_in_a_case():
    assert [pair for pair in list_other_pairs() if fewest_ranks(dict(pair))] == []


@pytest.mark.long
def test_a_refused_pair_stays_refused_with_another_value_of_a_third_axis():
    chance, labels = Random(3), values()
    for refused_pair, other in chance.sample(list_other_pairs(), 300):
        third = chance.choice([value for value in labels if value[0] not in (refused_pair[0], other[0])])
        assert fewest_ranks(dict((refused_pair, other, third))) is None, (refused_pair, other, third)


def test_the_page_lists_the_cases_the_axes_and_the_fields_without_one():
    for table in tables():
        assert table in PAGE.read_text(), "print the tables with `python tests/parallel/pair_cases.py`"
