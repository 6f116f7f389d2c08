"""The cells of a matrix: the product of its lists in file order, with `zip` and `exclude`."""

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
"""Fields at the root of a study that a matrix may vary."""
SECTIONS = ["model", "data", "train", "layout"]
"""Sections whose fields a matrix may vary."""
OF_PROGRAMS = ["scheme", "nodes", "ranks_per_node", "walltime", "queue", "program.command"]
"""Fields that the matrix of another program's study may vary, in addition to the program's values."""
MAX_CELLS = 100_000


@dataclass(frozen=True)
class MatrixValue:
    """One value of one matrix key, and its place."""

    value: Scalar
    path: FieldPath


Cell = dict[str, MatrixValue]
"""A value for each key of the matrix, in file order."""


def cells(study: AnyStudy, document: YamlDocument) -> list[Cell]:
    """Return every cell of the matrix, including `scheme`. The last key varies fastest.

    Raises
    ------
    UserError
        A key is unknown or used twice, or `--set` sets it as well. A list is empty or contains a value twice, the lists
        of a `zip` differ in length, an `exclude` matches nothing, or no cell remains.
    """
    axes = _axes(study, document)
    number = 1
    for axis in axes:
        number *= len(axis)
    if number > MAX_CELLS:
        raise UserError(f"{document.where(('matrix',))}: matrix: has {number} cells: at most {MAX_CELLS}")
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
    """Return whether the cell has every value that `hole` contains."""
    return bool(hole) and all(key in cell and same(cell[key].value, value) for key, value in hole.items())


def same(a: Scalar, b: Scalar) -> bool:
    """Return whether two values are equal. A truth value never equals a number."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _axes(study: AnyStudy, document: YamlDocument) -> list[list[Cell]]:
    """Return the axes of the product in the order of the file. Each is a list of partial cells."""
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
    return path if path in document.origins else path[:2]  # a single group may be written without a list


def _lockstep(
    group: dict[str, list[Scalar]], path: FieldPath, study: AnyStudy, document: YamlDocument, seen: set[str]
) -> list[Cell]:
    columns = {
        key: _choices(key, values, (*path, key), study, document, seen, distinct=False) for key, values in group.items()
    }
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        numbers = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise UserError(f"{document.where(path)}: matrix.zip: lists of different length ({numbers}): make them equal")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    values = [tuple(choice.value for choice in row.values()) for row in rows]
    if not rows or len(set(values)) < len(values):
        problem = "a row is repeated: remove one" if rows else "no key in it: add one"
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
            f"{place}: {key}: the matrix varies it, so that no run has this value: set matrix.{key} instead"
        )
    if not values:
        raise UserError(f"{where}: matrix.{key}: no value: give at least one, or remove the key")
    for i, value in enumerate(values):
        if distinct and any(same(value, earlier) for earlier in values[:i]):
            raise UserError(f"{document.where((*path, i))}: matrix.{key}: {show(value)} is listed twice: remove one")
    return [MatrixValue(value, (*path, i)) for i, value in enumerate(values)]


def check_key(key: str, study: AnyStudy, where: str) -> None:
    """Refuse a matrix key that cannot vary.

    Raises
    ------
    UserError
        The key cannot vary. The message names a similar key if there is one.
    """
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
    near = f", did you mean {dotted[0]!r}?" if dotted else suggest(key, valid)
    remedy = near or f": use {', '.join(VARIABLE)}, or a field such as train.micro_batch"
    raise UserError(f"{where}: matrix: {show(key)} cannot vary{remedy}")
