"""Conversion of pydantic errors to messages for users. Each line contains location, field and remedy."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from hpcbench.contract.section import DIRECTORY, LABEL, LINE, MAIL, NAME, OPTION, PATH, SHARE, VARIABLE
from hpcbench.errors import UserError

FieldPath: TypeAlias = tuple[str | int, ...]
"""Path to a value: mapping keys and list indices, outermost first."""
Locator: TypeAlias = Callable[[FieldPath], str]
"""Function that returns the ``file:line`` of the value at a path."""

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
}


_STRANGE = 3
"""Maximum number of unknown keys. A file with more keys is of a different kind."""
_MOST = 9
"""Maximum number of faults in a message."""
_MEANT = {
    "partition": "queue",
    "qos": "queue",
    "bank": "account",
    "project": "account",
    "time": "walltime",
    "time_limit": "walltime",
    "tasks_per_node": "ranks_per_node",
    "ntasks_per_node": "ranks_per_node",
    "partitions": "queues",
}
"""Scheduler terms, and the corresponding keys in hpcbench's files."""
PATTERN_REMEDIES = {
    NAME: "is not a name: use at most 64 letters, digits and . _ -, and start with a letter or digit",
    MAIL: "is not a mail address or user name: use one address of letters, digits and . _ + - @",
    LABEL: "is not a name: use at most 128 letters, digits and . _ : / @ + -, and start with a letter or digit",
    LINE: "has a control character: write plain text on one line",
    PATH: "has a NUL character: write a path",
    VARIABLE: "is not a variable name: use letters, digits and _, and do not start with a digit",
    OPTION: "is not an option: write it like -x or --some-name",
    SHARE: "is not a number of GPUs: write 1, or 1/4 for a quarter",
    DIRECTORY: "cannot be bound: write the absolute path of a directory, without : and ,",
}
"""Messages for texts that do not match a schema pattern: what is wrong, and what to write."""
_ONE_LINE = (LINE, DIRECTORY)
_SPANS = ("walltime", "max_walltime", "run_limit", "stop_ahead")
"""Duration fields, which need a unit."""


def make_user_error(
    error: ValidationError,
    schema: type[BaseModel],
    where: Locator,
) -> UserError:
    """Create a `UserError` with one line per error, or only the first line if the file is of a different kind.

    Unknown keys come first, because they often explain missing keys.

    Parameters
    ----------
    schema
        Validated model. Field names of the model are suggested for similar unknown keys.
    """
    findings = sorted(error.errors(include_url=False), key=lambda finding: finding["type"] != "extra_forbidden")
    faults = _collect_faults(findings, schema)
    lines = [format_fault(where(path), path, message) for path, message in faults.items()]
    strange = sum(finding["type"] == "extra_forbidden" for finding in findings)
    if strange > _STRANGE:  # a different kind of file: one line is enough
        return UserError(f"{lines[0]} (and {len(lines) - 1} more)")
    more = [f"and {len(lines) - _MOST} more"] if len(lines) > _MOST + 1 else []
    return UserError(*lines[: _MOST if more else None], *more)


def list_faults(error: ValidationError, schema: type[BaseModel]) -> dict[FieldPath, str]:
    """Return a message for each wrong value, keyed by path. Only the first error for a value is used."""
    return _collect_faults(error.errors(include_url=False), schema)


def format_fault(place: str, path: FieldPath, message: str) -> str:
    """Format a fault as a line with location, field and message."""
    name = ".".join(show(p).strip("'\"") if isinstance(p, str) else str(p) for p in path)
    return f"{place}: {name + ': ' if name else ''}{message}"


def _collect_faults(findings: Iterable[Any], schema: type[BaseModel]) -> dict[FieldPath, str]:
    faults: dict[FieldPath, str] = {}
    for finding in findings:
        path: FieldPath = tuple(part for part in finding["loc"] if not _is_internal(part))
        faults.setdefault(path, _describe_finding(finding, schema, path))
    return faults


def _is_internal(part: str | int) -> bool:
    """Return whether a path component is pydantic's name for a branch or a key: `[key]`, `int`, `list[...]`."""
    return isinstance(part, str) and (
        part in ("[key]", "int", "str", "float", "bool", "constrained-int") or "[" in part
    )


def _describe_finding(finding: Any, schema: type[BaseModel], path: FieldPath) -> str:
    kind, value, context = finding["type"], finding["input"], finding.get("ctx", {})
    if kind == "extra_forbidden":
        known_keys = list_fields(schema, path[:-1])
        meant = _MEANT.get(str(path[-1]))
        if meant in known_keys:
            return f"unknown key (did you mean {meant!r}?)"
        if str(path[-1]).isdigit():
            return "unknown key: write a number without commas, such as 4000 for 4,000"
        near = suggest(str(path[-1]), known_keys) or f": use one of {', '.join(known_keys)}"
        return f"unknown key{near}"
    if kind == "missing":
        return "is missing: add it"
    if kind == "string_type" and path and path[-1] in _SPANS and type(value) is int:
        return f"{value} has no unit: write {value}m for minutes or {value}s for seconds"
    if kind in _TYPES:
        return (
            f"must be {_TYPES[kind]}, not {'nothing' if value is None else show(value)}{_suggest_quotes(kind, value)}"
        )
    if kind == "literal_error":
        near = suggest(value, _list_choices(context)) if isinstance(value, str) else ""
        return f"must be {context['expected']}, not {show(value)}{near}"
    if kind == "string_pattern_mismatch":
        if isinstance(value, str) and ("\n" in value or "\r" in value) and context.get("pattern") in _ONE_LINE:
            return f"{show(value)} has several lines: write one line per entry"
        return f"{show(value)} {PATTERN_REMEDIES[context.get('pattern')]}"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        sign = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below"}.get(kind, "at most")
        return f"must be {sign} {next(iter(context.values()))}, not {show(value)}"
    if kind == "string_too_short":
        return "must not be empty"
    message = str(finding["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:] if kind != "value_error" else message


def _suggest_quotes(kind: str, value: Any) -> str:
    if kind == "string_type":
        return ": put it in quotes" if isinstance(value, int | float) else ""
    return ": remove the quotes" if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit() else ""


def _list_choices(context: dict[str, Any]) -> list[str]:
    return [word.strip(" '\"") for word in str(context.get("expected", "")).replace(" or ", ",").split(",")]


def list_fields(schema: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the field names of the section at `path`. The result is empty if there is no such section."""
    section = find_section(schema, path)
    return [field.alias or name for name, field in section.model_fields.items()] if section else []


def find_section(schema: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the section at `path`, or None if the value there is not a section."""
    current: Any = schema
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = None if field is None else field.annotation
        else:
            arguments = get_args(current)
            current = arguments[-1] if arguments else None
        models = [a for a in get_args(current) if isinstance(a, type) and issubclass(a, BaseModel)]
        if models and type(None) in get_args(current):
            current = models[0]
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def suggest(word: str, known_words: list[str]) -> str:
    """Return `` (did you mean 'X'?)`` if a known word is similar, else an empty string."""
    near = difflib.get_close_matches(word, known_words, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def show(value: object, limit: int = 60) -> str:
    """Return a user's value as a short printable text."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."
