"""Presets of models and schemes, stored as YAML files in this directory."""

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

from hpcbench.contract.problems import show, suggest
from hpcbench.study import yaml12


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return the content of a preset file."""
    return yaml12.read(Path(__file__).parent / f"{name}.yaml").data


def models() -> list[str]:
    """Return the names of the model presets."""
    return list(read_table("models"))


def schemes() -> list[str]:
    """Return the names of the scheme presets.

    ``{share}`` is a placeholder for a number between 0 and 1. All other placeholders stand for integers.
    """
    return list(read_table("schemes"))


def model(name: str) -> dict[str, Any]:
    """Return the fields of a model preset.

    Raises
    ------
    ValueError
        The preset does not exist. The message lists all presets.
    """
    if name not in read_table("models"):
        near = suggest(name, models())
        raise ValueError(f"unknown model {show(name)}{near}: use one of {', '.join(models())}")
    return {"name": name, **copy.deepcopy(read_table("models")[name])}


def scheme(name: str) -> dict[str, Any]:
    """Return the fields of a scheme preset, with placeholders filled in.

    Raises
    ------
    ValueError
        The preset does not exist. The message lists all presets.
    """
    match = _match(name)
    if match is not None:
        filled: dict[str, Any] = _fill(*match)
        return filled
    near = suggest(name, [pattern for pattern in schemes() if "{" not in pattern])
    raise ValueError(f"unknown scheme {show(name)}{near}: use one of {', '.join(schemes())}")


def is_scheme(name: str) -> bool:
    """Return whether a scheme preset has this name."""
    return _match(name) is not None


def _match(name: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Return the fields of a preset and the values of its placeholders, or None if no preset matches."""
    for pattern, fields in read_table("schemes").items():
        expression = re.sub(r"\\{(\w+)\\}", _number, re.escape(pattern))
        match = re.fullmatch(expression, name)
        if match:
            return fields, match.groupdict()
    return None


def _number(word: re.Match[str]) -> str:
    """Return a pattern for the values of a placeholder."""
    return f"(?P<{word[1]}>{r'0[.][0-9]{1,6}' if word[1] == 'share' else '[1-9][0-9]{0,2}'})"


def _fill(value: Any, numbers: dict[str, str]) -> Any:
    if isinstance(value, str):
        alone = re.fullmatch(r"\{(\w+)\}", value)
        return int(numbers[alone[1]]) if alone else value.format(**numbers)
    if isinstance(value, list):
        return [_fill(item, numbers) for item in value]
    return {key: _fill(item, numbers) for key, item in value.items()} if isinstance(value, dict) else value
