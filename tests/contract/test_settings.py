"""Tests of settings from runs of every version, as reports read them with the schemas of run.json."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from hpcbench.contract.event.part import LogObject
from hpcbench.contract.program import ProgramRun
from hpcbench.contract.run import Run
from hpcbench.contract.settings import LayoutSettings, LoggedSettings, SchemeSettings

RESULTS = Path(__file__).parents[2] / "results" / "reference"
STORED = [
    path
    for name in ("demo-2-cores/report.json", "studies/experts.json", "throttled-training-shared.json")
    for path in [RESULTS / name, *(RESULTS / "convergence").glob("*.json")]
]


def stored(value: Any) -> Iterator[dict[str, Any]]:
    """Return the settings of all runs in a stored report."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and {"model", "train", "layout", "scheme"} <= value.keys():
        yield value
    else:
        for each in inner:
            yield from stored(each)


def lost(part: LogObject, place: str = "") -> list[str]:
    """Return the values in the JSON object that differ from the typed fields."""
    paths = []
    for name in (field.name for field in fields(part) if field.name != "raw"):
        raw, value = part.raw.get(name), getattr(part, name)
        if isinstance(value, LogObject):
            paths += lost(value, f"{place}{name}.")
        elif name == "rules":
            paths += [f"{place}{name}"] if len(raw or ()) != len(value or ()) else []
        elif raw is not None and (list(value) if isinstance(value, tuple) else value) != raw:
            paths.append(f"{place}{name}")
    return paths


@pytest.mark.parametrize("path", sorted(set(STORED)), ids=lambda path: path.name)
def test_stored_runs_are_read_without_a_loss(path: Path) -> None:
    runs = list(stored(json.loads(path.read_text(encoding="utf-8"))))
    assert [lost(LoggedSettings.read(run)) for run in runs] == [[]] * len(runs)
    assert all(LoggedSettings.read(run).raw == run for run in runs)


def test_some_stored_runs_are_of_an_older_form() -> None:
    runs = [run for path in set(STORED) for run in stored(json.loads(path.read_text(encoding="utf-8")))]
    assert len(runs) > 100 and any("cp" not in run["layout"] for run in runs)


def undeclared(part: type[LogObject], schemas: list[type[BaseModel]], place: str = "") -> list[str]:
    """Return the typed fields that are in no schema."""
    paths = []
    for field in fields(part):
        declared = [schema.model_fields[field.name] for schema in schemas if field.name in schema.model_fields]
        if field.name != "raw" and not declared:
            paths.append(f"{place}{field.name}")
        inner = [
            kind
            for attribute in declared
            for kind in (attribute.annotation, *get_args(attribute.annotation))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        if isinstance(field.default, LogObject):
            paths += undeclared(type(field.default), inner, f"{place}{field.name}.")
    return paths


def test_every_typed_setting_is_one_of_run_json() -> None:
    assert undeclared(LoggedSettings, [Run, ProgramRun]) == ["program.recompute"], (
        "only hpcbench's own training has that"
    )


def test_odd_values_are_taken_for_missing_ones() -> None:
    odd = {"model": 5, "train": {"steps": "many", "recompute": 1.5}, "layout": {"stages": "auto"}, "scheme": None}
    settings = LoggedSettings.read(odd)
    assert (settings.model.name, settings.train.steps, settings.train.recompute) == (None, None, None)
    assert (settings.layout, settings.scheme) == (LayoutSettings(), SchemeSettings())
    assert settings.scheme.codecs == set() and not settings.scheme.is_uncompressed
    assert LoggedSettings.read({"train": {"recompute": 2}}).train.recompute == 2
    assert LoggedSettings.read({"train": {"recompute": "full"}}).train.recompute == "full"


def test_a_programs_work_is_read_from_its_own_section() -> None:
    assert LoggedSettings.read({"program": {"steps": 7, "log": "nanogpt"}}).work.steps == 7
    assert LoggedSettings.read({"train": {"steps": 9}}).work.steps == 9
