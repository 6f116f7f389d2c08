"""Tests that parsing each dialect's log yields the expected records, which were written by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import from_log
from hpcbench.contract.events import Evaluation
from hpcbench.contract.step_line import Step

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))


def expected(log: Path) -> Any:
    return json.loads(log.with_suffix(".json").read_text())


def given(record: Step) -> dict[str, Any]:
    return {name: comparable(value) for name, value in vars(record).items() if value is not None}


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else pytest.approx(value, rel=1e-12)
    return value


def evaluations(log: RunLog) -> list[dict[str, Any]]:
    return [{"line": event.line, **event.to_json()} for event in log.events if isinstance(event, Evaluation)]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_gives_the_records_of_its_format(path: Path) -> None:
    run = from_log(path)
    truth = expected(path)
    assert run.log is not None
    assert run.log.dialect == truth["dialect"]
    assert [given(record) for record in run.log.steps.values()] == truth["steps"]
    assert evaluations(run.log) == truth["evaluations"]
    assert [note.why for note in run.log.notes] == truth["notes"]
    assert run.state == truth["state"]


def test_each_dialect_has_a_log() -> None:
    assert {expected(path)["dialect"] for path in LOGS} == {dialect.name for dialect in DIALECTS}
