"""Loading and validation of study files with `--set` options."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench.contract.problems import FieldPath, Locator, make_user_error, show
from hpcbench.contract.program import Program
from hpcbench.errors import UserError
from hpcbench.study import presets
from hpcbench.study.schema import AnyStudy, ProgramStudy, Study
from hpcbench.study.yaml12 import YamlDocument, parse_value, read


@dataclass(frozen=True)
class Loaded:
    """A study, and the location of each value."""

    study: AnyStudy
    document: YamlDocument
    """File content, with `--set` applied and presets filled in."""
    sets: list[str]
    """The `--set` options, as given."""


def load_study(path: Path, sets: list[str] | None = None) -> Loaded:
    """Read, override and validate a study.

    Parameters
    ----------
    sets
        Options ``a.b=value``. The value is parsed as YAML.

    Raises
    ------
    UserError
        The study is invalid. The message contains file and line, or the option.
    """
    document = read(path)
    apply_sets(document, sets or [])
    data = document.data
    matrix = data.get("matrix")
    if isinstance(matrix, dict) and isinstance(matrix.get("zip"), dict):
        matrix["zip"] = [matrix["zip"]]  # the list may be omitted for a single group
    if "model" in data:
        data["model"] = fill_model(data["model"], document.where(("model", "preset")))
    study = validate(data, document.where)
    return Loaded(study, document, sets or [])


def validate(data: dict[str, Any], where: Locator) -> AnyStudy:
    """Validate a study of hpcbench's own engine or of another program.

    Raises
    ------
    UserError
        The data violate the schema.
    """
    schema: type[AnyStudy] = ProgramStudy if "program" in data else Study
    section = next((name for name in ("model", "data", "train", "layout") if name in data), None)
    if schema is ProgramStudy and section is not None:
        raise UserError(
            f"{where((section,))}: {section}: the program of the study has its own training: remove {section} (steps, "
            "warmup_steps and seed are fields of program)"
        )
    try:
        study = schema.model_validate(data)
    except ValidationError as error:
        raise make_user_error(error, schema, where) from None
    if isinstance(study, ProgramStudy):
        _check_seed(study.program, where)
    return study


def _check_seed(program: Program, where: Locator) -> None:
    """Refuse a seed that is not passed to the program. A default seed is accepted, because it only numbers repeats."""
    if program.seed != Program.model_fields["seed"].default and not program.uses("seed"):
        raise UserError(
            f"{where(('program', 'seed'))}: program.seed: is not used: write {{seed}} in command or env, or remove it"
        )


def fill_model(model: Any, where: str) -> Any:
    """Fill in the fields of a model that is given by name, or by `preset` and overrides.

    Raises
    ------
    UserError
        The preset does not exist. The message contains `where`.
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


def apply_sets(document: YamlDocument, sets: list[str]) -> None:
    """Apply each `a.b=value` to the document's data.

    Raises
    ------
    UserError
        An option does not have the form ``key=value``, or its path contains a value that is not a mapping.
    """
    for option in sets:
        name = f"--set {show(option, 100)[1:-1]}"
        key, equals, text = option.partition("=")
        path = split_key(key.strip())
        if not equals or not path:
            raise UserError(f"{name}: expected KEY=VALUE, such as train.steps=50")
        put(document.data, path, parse_value(text, name), name)
        for inner in [p for p in document.origins if p[: len(path)] == path]:
            del document.origins[inner]
        document.origins[path] = name


def split_key(key: str) -> FieldPath:
    """Split a key such as ``train.steps`` into a path. Matrix keys are not split after ``matrix.``."""
    head, _, name = key.partition(".")
    if head == "matrix" and name:
        return head, name
    parts = tuple(key.split("."))
    return parts if all(parts) else ()


def put(data: dict[str, Any], path: FieldPath, value: Any, name: str) -> None:
    """Set the value at `path`. Missing sections are created.

    Raises
    ------
    UserError
        A section of the path is not a mapping. The message contains `name`, the option or location.
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
