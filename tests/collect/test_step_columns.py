"""Tests that the step columns equal the records that were added."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.collect.steps import COLUMNS, Steps
from hpcbench.contract.step_line import TYPECODES, Step

RECORDS = st.builds(
    Step,
    line=st.integers(1, 99),
    step=st.integers(1, 12),
    steps=st.none() | st.just(12),
    loss=st.none() | st.floats(allow_nan=False),
    seconds=st.none() | st.floats(0, 9),
    message_bytes=st.none() | st.integers(0, 2**63 - 1),
)


def select_kept(records: list[Step]) -> dict[int, Step]:
    steps: dict[int, Step] = {}
    for record in records:
        steps.setdefault(record.step, record)
    return steps


@given(st.lists(RECORDS, max_size=15), st.booleans(), st.integers(0, 13))
def test_columns_equal_the_records(records: list[Step], ascending: bool, first: int) -> None:
    records = sorted(records, key=lambda record: record.step) if ascending else records
    steps, truth = Steps(), select_kept(records)
    for record in records:
        assert steps.add(record) == truth[record.step]
    assert list(steps.items()) == list(truth.items())
    assert steps.last == (truth[max(truth)] if truth else None)
    assert all((step in steps) == (step in truth) for step in range(14))
    later = [record for record in truth.values() if record.step >= first]
    for name in (*COLUMNS, "step", "line"):
        values = [getattr(record, name) for record in later]
        assert steps.column(name, first=first) == [value for value in values if value is not None]
    rows = [(r.step, r.loss, r.message_bytes) for r in later if r.loss is not None and r.message_bytes is not None]
    assert steps.columns("step", "loss", "message_bytes", first=first) == rows
    assert steps.aligned("step", "loss", "message_bytes", first=first) == [[row[i] for row in rows] for i in range(3)]


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=6), max_size=5))
def test_many_records_at_once_are_kept_if_they_are_later(batches: list[list[int]]) -> None:
    steps: Steps = Steps()
    alone: dict[int, int] = {}
    for line, batch in enumerate(batches):
        columns = {"step": array("q", batch), "line": array("q", [line] * len(batch))}
        above = sorted(set(batch)) == batch and batch[0] > max(alone, default=0)
        assert steps.extend(columns) == above
        for step in batch:
            assert steps.add(Step(step, line=line)).line == alone.setdefault(step, line)
    assert {step: record.line for step, record in steps.items()} == alone


def test_a_record_that_does_not_fit_leaves_no_trace() -> None:
    steps = Steps()
    steps.add(Step(1, 9, line=1, loss=2.5, wire_bytes=7))
    for bad in (Step(2, 9, loss=1.0, wire_bytes=2**63), Step(2**63), Step(2, loss=10**400)):
        with pytest.raises(OverflowError):
            steps.add(bad)
        assert steps.columns("step", "loss", "wire_bytes") == [(1, 2.5, 7)]
    assert list(steps) == [1] and 2 not in steps


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError):
        Steps().column("los")


def test_integers_stay_integers() -> None:
    integers = {name for name, code in TYPECODES.items() if code == "q"}
    assert {"line", "step", "steps", "message_bytes", "wire_bytes", "skipped"} <= integers
    assert not {"loss", "seconds", "model_flops_per_rank"} & integers
