"""From a study file and `--set` options to a validated study."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench.contract.problems import FieldPath, make_user_error, show
from hpcbench.contract.program import Program
from hpcbench.errors import UserError
from hpcbench.study import presets
from hpcbench.study.schema import AnyStudy, ProgramStudy, Study
from hpcbench.study.yaml12 import Document, parse_value, read


@dataclass(frozen=True)
class Loaded:
    """A study, and the place where each value of it stands."""

    study: AnyStudy
    document: Document
    """The content of the file with `--set` applied and presets filled in."""
    sets: list[str]
    """The `--set` options, as given."""


def load_study(path: Path, sets: list[str] | None = None) -> Loaded:
    """Read, override and validate a study.

    Parameters
    ----------
    path
        The study file.
    sets
        Options of the form ``a.b=value``, with the value in YAML.

    Raises
    ------
    UserError
        Something is wrong. The message names file and line, or the option.
    """
    document = read(path)
    apply_sets(document, sets or [])
    data = document.data
    matrix = data.get("matrix")
    if isinstance(matrix, dict) and isinstance(matrix.get("zip"), dict):
        matrix["zip"] = [matrix["zip"]]  # one group needs no list around it
    if "model" in data:
        data["model"] = fill_model(data["model"], document.where(("model", "preset")))
    study = validate(data, document.where)
    return Loaded(study, document, sets or [])


def validate(data: dict[str, Any], where: Callable[[FieldPath], str]) -> AnyStudy:
    """The study that `data` describe: of hpcbench's own training, or of a program of others.

    Parameters
    ----------
    where
        ``file:line`` of a path of the study.

    Raises
    ------
    UserError
        It does not follow the schema.
    """
    schema: type[AnyStudy] = ProgramStudy if "program" in data else Study
    own = next((name for name in ("model", "data", "train", "layout") if name in data), None)
    if schema is ProgramStudy and own is not None:
        raise UserError(f"{where((own,))}: {own}: a study with program has a training of its own: remove {own}")
    try:
        study = schema.model_validate(data)
    except ValidationError as error:
        raise make_user_error(error, schema, where) from None
    if isinstance(study, ProgramStudy):
        _check_seed(study.program, where)
    return study


def _check_seed(program: Program, where: Callable[[FieldPath], str]) -> None:
    """Refuse a seed that the program never sees. Its runs have one all the same, which tells the repeats apart."""
    if program.seed != Program.model_fields["seed"].default and not program.uses("seed"):
        raise UserError(
            f"{where(('program', 'seed'))}: program.seed: is not used: write {{seed}} in command or env, or remove it"
        )


def fill_model(model: Any, where: str) -> Any:
    """Fill in a model that is given by name, or by `preset` and changes to it.

    Raises
    ------
    UserError
        There is no such preset; `where` names the place.
    """
    name = model.get("preset") if isinstance(model, dict) else model
    if not isinstance(name, str):
        return model
    try:
        fields = presets.model(name)
    except ValueError as error:
        raise UserError(f"{where}: model: {error}") from None
    changes = {key: value for key, value in model.items() if key != "preset"} if isinstance(model, dict) else {}
    return {**fields, **changes}


def apply_sets(document: Document, sets: list[str]) -> None:
    """Write each `a.b=value` into the document's data.

    Raises
    ------
    UserError
        An option is no ``key=value``, or goes through something that is no mapping.
    """
    for option in sets:
        name = f"--set {show(option, 100)[1:-1]}"
        key, equals, text = option.partition("=")
        path = split_key(key.strip())
        if not equals or not path:
            raise UserError(f"{name}: expected KEY=VALUE, such as train.steps=50")
        put(document.data, path, parse_value(text, name), name)
        for known in [p for p in document.origins if p[: len(path)] == path]:
            del document.origins[known]
        document.origins[path] = name


def split_key(key: str) -> FieldPath:
    """``train.steps`` as a path; `matrix.` keeps the dots of what follows, for its keys are dotted themselves."""
    head, _, rest = key.partition(".")
    if head == "matrix" and rest:
        return head, rest
    parts = tuple(key.split("."))
    return parts if all(parts) else ()


def put(data: dict[str, Any], path: FieldPath, value: Any, name: str) -> None:
    """Set the value at `path`, making the sections on the way.

    Raises
    ------
    UserError
        Something on the way is no mapping; `name` says who asked.
    """
    section = data
    for i, key in enumerate(path[:-1]):
        inner = section.get(str(key))
        if key == "model" and i == 0 and isinstance(inner, str):
            inner = {"preset": inner}
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            raise UserError(f"{name}: {'.'.join(map(str, path[: i + 1]))} is {show(inner)}, not a mapping")
        section[str(key)] = inner = copy.copy(inner)
        section = inner
    section[str(path[-1])] = value
