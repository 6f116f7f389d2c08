"""Matrix cells: the product of all lists in file order, with `zip` and `exclude` applied."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.contract.problems import FieldPath, list_fields, show, suggest
from hpcbench.contract.section import Scalar
from hpcbench.errors import UserError
from hpcbench.study.load import split_key
from hpcbench.study.schema import AnyStudy, ProgramStudy, Study
from hpcbench.study.yaml12 import YamlDocument

VARIABLE = ["scheme", "nodes", "ranks_per_node", "walltime", "queue", "model"]
"""Top-level study fields that a matrix may vary."""
SECTIONS = ["model", "data", "train", "layout"]
"""Study sections whose fields a matrix may vary."""
OF_PROGRAMS = ["scheme", "nodes", "ranks_per_node", "walltime", "queue", "program.command"]
"""Fields that the matrix of a program study may vary, in addition to the program's values."""
MAX_CELLS = 100_000


@dataclass(frozen=True)
class MatrixValue:
    """A value of a matrix key, and its location."""

    value: Scalar
    path: FieldPath


Cell = dict[str, MatrixValue]
"""A value for each matrix key, in file order."""


def cells(study: AnyStudy, document: YamlDocument) -> list[Cell]:
    """Return all matrix cells, including `scheme`. The last key varies fastest.

    Raises
    ------
    UserError
        A key is unknown, duplicate, or also set by `--set`. A list is empty or contains duplicates. The lists of a
        `zip` differ in length. An `exclude` matches nothing. No cell remains.
    """
    axes = _axes(study, document)
    number = 1
    for axis in axes:
        number *= len(axis)
    if number > MAX_CELLS:
        raise UserError(
            f"{document.where(('matrix',))}: matrix: has {number} cells, but at most {MAX_CELLS} are allowed"
        )
    product = [{k: c for part in parts for k, c in part.items()} for parts in itertools.product(*axes)]
    remaining = product
    for i, hole in enumerate(study.matrix.exclude):
        path: FieldPath = ("matrix", "exclude", i)
        keys = list(product[0])
        for key in hole:
            if key not in keys:
                raise UserError(
                    f"{document.where((*path, key))}: matrix.exclude: {show(key)} is not a key of the matrix"
                    f"{suggest(key, keys)}: use one of {', '.join(keys) or 'none'}"
                )
        if not any(matches(hole, cell) for cell in product):
            raise UserError(f"{document.where(path)}: matrix.exclude: matches no cell: correct or remove it")
        remaining = [cell for cell in remaining if not matches(hole, cell)]
    if not remaining:
        where = document.where(("matrix", "exclude"))
        raise UserError(f"{where}: matrix.exclude: leaves no cell: remove an exclusion")
    return remaining


def matches(hole: Mapping[str, Scalar], cell: Cell) -> bool:
    """Return whether the cell contains all values in `hole`."""
    return bool(hole) and all(key in cell and same(cell[key].value, value) for key, value in hole.items())


def same(a: Scalar, b: Scalar) -> bool:
    """Return whether two values are equal. Booleans never equal numbers."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _axes(study: AnyStudy, document: YamlDocument) -> list[list[Cell]]:
    """Return the axes of the product in file order. Each axis is a list of partial cells."""
    singles = study.matrix.__pydantic_extra__
    raw = document.data.get("matrix") or {}
    axes: list[list[Cell]] = []
    seen: set[str] = set()
    for key in raw:
        if key == "zip":
            for i, group in enumerate(study.matrix.zip):
                axes.append(_lockstep(group, _zip_path(document, i), study, document, seen))
        elif key != "exclude":
            path: FieldPath = ("matrix", key)
            axes.append([{key: choice} for choice in _choices(key, singles[key], path, study, document, seen)])
    return axes


def _zip_path(document: YamlDocument, i: int) -> FieldPath:
    path: FieldPath = ("matrix", "zip", i)
    return path if path in document.origins else path[:2]  # the list may be omitted for a single group


def _lockstep(
    group: dict[str, list[Scalar]], path: FieldPath, study: AnyStudy, document: YamlDocument, seen: set[str]
) -> list[Cell]:
    columns = {
        key: _choices(key, values, (*path, key), study, document, seen, distinct=False) for key, values in group.items()
    }
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        numbers = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise UserError(
            f"{document.where(path)}: matrix.zip: lists of different lengths ({numbers}): use lists of equal length"
        )
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    values = [tuple(choice.value for choice in row.values()) for row in rows]
    if not rows or len(set(values)) < len(values):
        problem = "a row is repeated: remove one" if rows else "a group has no key: add a key"
        raise UserError(f"{document.where(path)}: matrix.zip: {problem}")
    return rows


def _choices(
    key: str,
    values: list[Scalar],
    path: FieldPath,
    study: AnyStudy,
    document: YamlDocument,
    seen: set[str],
    *,
    distinct: bool = True,
) -> list[MatrixValue]:
    where = document.where(path)
    check_key(key, study, where)
    if key in seen:
        raise UserError(f"{where}: matrix: {show(key)} is listed twice: keep one")
    seen.add(key)
    field = split_key(key)
    place = document.origins.get(field, "")
    if place.startswith("--set ") or (field == ("scheme",) and study.scheme != Study.model_fields["scheme"].default):
        raise UserError(
            f"{place}: {key}: the matrix varies this field, so no run has this value: set matrix.{key} instead"
        )
    if not values:
        raise UserError(f"{where}: matrix.{key}: has no value: give at least one, or remove the key")
    for i, value in enumerate(values):
        if distinct and any(same(value, earlier) for earlier in values[:i]):
            raise UserError(f"{document.where((*path, i))}: matrix.{key}: {show(value)} is listed twice: remove one")
    return [MatrixValue(value, (*path, i)) for i, value in enumerate(values)]


def check_key(key: str, study: AnyStudy, where: str) -> None:
    """Refuse a matrix key that must not vary."""
    if isinstance(study, ProgramStudy):
        names = [*OF_PROGRAMS, *(f"program.values.{name}" for name in study.program.values)]
        if key not in names:
            near = suggest(key, names) or f": use {', '.join(names)}, or add the value to program.values"
            raise UserError(f"{where}: matrix: {show(key)} cannot vary{near}")
        return
    section, dot, field = key.partition(".")
    fields: list[str] = list_fields(Study, (section,)) if section in SECTIONS and dot else []
    if key in VARIABLE or field in fields:
        return
    valid: list[Any] = VARIABLE + [f"{s}.{f}" for s in SECTIONS for f in list_fields(Study, (s,))]
    dotted = [k for k in valid if k.endswith(f".{key}")]
    near = f" (did you mean {dotted[0]!r}?)" if dotted else suggest(key, valid)
    remedy = near or f": use {', '.join(VARIABLE)}, or a field such as train.micro_batch"
    raise UserError(f"{where}: matrix: {show(key)} cannot vary{remedy}")
