"""Expansion of a study into runs of all matrix cells and repeats. Each repeat rotates the order of the schemes."""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hpcbench.contract.problems import FieldPath, Locator
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Scalar
from hpcbench.errors import UserError
from hpcbench.study.find_scheme import NOTHING, Offer, find_scheme
from hpcbench.study.idle import IdleSettings
from hpcbench.study.load import Loaded, fill_model, put, split_key, validate
from hpcbench.study.matrix import Cell, cells
from hpcbench.study.schema import AnyStudy, ProgramStudy, Study
from hpcbench.study.settle import check_device, check_program, check_rules, settle_train
from hpcbench.study.size import Capacity, Size, resolve
from hpcbench.study.yaml12 import YamlDocument


@dataclass(frozen=True)
class ExpandedRun:
    """A run with all values filled in."""

    id: str
    repeat: int
    """Repeat number, starting at 1."""
    pairing: str
    """Name of the pairing. Runs with the same cell and pairing are compared across schemes."""
    cell: dict[str, Scalar]
    """Values of all matrix keys except `scheme`."""
    study: AnyStudy
    """The study with the values of the cell."""
    scheme_name: str
    scheme: Scheme
    clash: str | None
    """Warning if another source defines a scheme with the same name, or None."""
    size: Size
    where: Locator
    """Locations of the study's values in this cell."""


def expand(loaded: Loaded, capacity: Capacity, offer: Offer = NOTHING) -> list[ExpandedRun]:
    """Return all runs of the study on a site, ordered by repeat, then cell, then scheme.

    Raises
    ------
    UserError
        A cell violates the schema, has sizes that do not divide evenly, or names an unknown scheme. Other causes are a
        missing baseline, a threshold that applies to no run, and a setting that changes nothing in any run.
    """
    groups: dict[str, list[ExpandedRun]] = {}
    cell_of: dict[str, dict[str, Scalar]] = {}
    idle = IdleSettings()
    for cell in cells(loaded.study, loaded.document):
        where = _where(cell, loaded.document)
        study = _variant(cell, loaded, where)
        run = _first(cell, study, where, capacity, offer, cell_of)
        groups.setdefault(run.id, []).append(run)
        if isinstance(study, Study):
            idle.add(study, run.scheme, run.size.layout, writes=_writes(cell, loaded.document), where=where)
    idle.check()
    _check_baseline(groups, loaded)
    _check_thresholds(groups, loaded)
    runs: list[ExpandedRun] = []
    for repeat in range(1, loaded.study.repeats + 1):
        for slug, group in groups.items():
            turn = (repeat - 1) % len(group)
            for run in group[turn:] + group[:turn]:
                name = "-".join(filter(None, (f"r{repeat}", slug, run.scheme_name)))
                runs.append(replace(run, id=name, repeat=repeat, pairing=f"r{repeat}"))
    return runs


def _first(
    cell: Cell,
    study: AnyStudy,
    where: Locator,
    capacity: Capacity,
    offer: Offer,
    cell_of: dict[str, dict[str, Scalar]],
) -> ExpandedRun:
    """Return the first run of a cell. The run id is the unique slug of the cell."""
    size = resolve(study, capacity, where)
    scheme, clash = find_scheme(study.scheme, study.schemes, offer, where(("scheme",)))
    if isinstance(study, Study):
        study = study.model_copy(update={"train": settle_train(study.train, scheme, where)})
        check_rules(study, scheme, size, where)
        check_device(study, scheme, capacity, where)
    else:
        check_program(study, scheme, size, where)
    values = {key: choice.value for key, choice in cell.items() if key != "scheme"}
    slug = "-".join(_word(key, value) for key, value in values.items())[:100]
    number = 1
    while cell_of.setdefault(name := slug if number == 1 else f"{slug}-{number}", values) != values:
        number += 1
    return ExpandedRun(name, 1, "r1", values, study, study.scheme, scheme, clash, size, where)


def _word(key: str, value: Scalar) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", f"{key.rpartition('.')[2]}{value}").replace("..", "_")


def _where(cell: Cell, document: YamlDocument) -> Locator:
    varied = {split_key(key): choice.path for key, choice in cell.items()}

    def where(path: FieldPath) -> str:
        for end in range(len(path), 0, -1):
            if path[:end] in varied:
                return document.where(varied[path[:end]])
        return document.where(path)

    return where


def _writes(cell: Cell, document: YamlDocument) -> Callable[[FieldPath], bool]:
    """Return a function that tests whether a value is set explicitly, not by a preset or default."""
    varied = {split_key(key) for key in cell}

    def writes(path: FieldPath) -> bool:
        sections = (path[:end] for end in range(1, len(path) + 1))
        by_option = any(document.origins.get(section, "").startswith("--set ") for section in sections)
        return path in document.origins or path in varied or by_option

    return writes


def _variant(cell: Cell, loaded: Loaded, where: Locator) -> AnyStudy:
    """Apply the values of a cell to the study."""
    data: dict[str, Any] = {key: value for key, value in loaded.document.data.items() if key != "matrix"}
    for key in sorted(cell, key=lambda key: key.count(".")):
        put(data, split_key(key), cell[key].value, loaded.document.where(cell[key].path))
    if any(key.split(".")[0] == "model" for key in cell):
        data["model"] = fill_model(copy.copy(data["model"]), where(("model",)))
    return validate(data, where)


def _check_baseline(groups: dict[str, list[ExpandedRun]], loaded: Loaded) -> None:
    baseline = loaded.study.baseline.scheme
    for group in groups.values():
        names = [run.scheme_name for run in group]
        if baseline not in names:
            cell = ", ".join(f"{key}={value}" for key, value in group[0].cell.items())
            at = f" at {cell}" if cell else ""
            is_program = isinstance(loaded.study, ProgramStudy)
            hint = ", or give the scheme its own `arguments` or `environment` under schemes" if is_program else ""
            raise UserError(
                f"{group[0].where(('scheme',))}: scheme: the baseline {baseline!r} has no run{at} to compare with: add "
                f"the baseline to matrix.scheme, or name another scheme as baseline.scheme{hint}"
            )


def _check_thresholds(groups: dict[str, list[ExpandedRun]], loaded: Loaded) -> None:
    """Refuse a threshold that applies to no run, because a report would show it as met."""
    runs = [run for group in groups.values() for run in group]
    for i, threshold in enumerate(loaded.study.thresholds):
        if not any(threshold.concerns(run.scheme_name, run.cell) for run in runs):
            raise UserError(
                f"{loaded.document.where(('thresholds', i))}: thresholds.{i}: no run has the scheme and cell of this "
                "threshold: use a scheme and values of the matrix"
            )
