"""Presets of models and schemes, kept as YAML files in this directory."""

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

from hpcbench.contract.problems import show, suggest
from hpcbench.study import yaml12


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return the content of a file of presets."""
    return yaml12.read(Path(__file__).parent / f"{name}.yaml").data


def models() -> list[str]:
    """Return the names of the model presets."""
    return list(read_table("models"))


def schemes() -> list[str]:
    """Return the names of the scheme presets.

    ``{share}`` stands for a number between 0 and 1, other names in braces for a whole number.
    """
    return list(read_table("schemes"))


def model(name: str) -> dict[str, Any]:
    """Return the fields of a model preset.

    Raises
    ------
    ValueError
        There is no such preset. The message names the known ones.
    """
    if name not in read_table("models"):
        near = suggest(name, models())
        raise ValueError(f"unknown model {show(name)}{near}: use one of {', '.join(models())}")
    return {"name": name, **copy.deepcopy(read_table("models")[name])}


def scheme(name: str) -> dict[str, Any]:
    """Return the fields of a scheme preset, with its numbers filled in.

    Raises
    ------
    ValueError
        There is no such preset. The message names the known ones.
    """
    match = _match(name)
    if match is not None:
        filled: dict[str, Any] = _fill(*match)
        return filled
    near = suggest(name, [pattern for pattern in schemes() if "{" not in pattern])
    names = f"{', '.join(schemes())}, and those under `schemes:`"
    raise ValueError(f"unknown scheme {show(name)}{near}: use one of {names}")


def is_scheme(name: str) -> bool:
    """Return whether a preset has this name."""
    return _match(name) is not None


def _match(name: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Return the fields of a preset, and the values of the words in braces; None if no preset matches."""
    for pattern, fields in read_table("schemes").items():
        expression = re.sub(r"\\{(\w+)\\}", _number, re.escape(pattern))
        match = re.fullmatch(expression, name)
        if match:
            return fields, match.groupdict()
    return None


def _number(word: re.Match[str]) -> str:
    """Return a pattern for the values of a word in braces."""
    return f"(?P<{word[1]}>{r'0[.][0-9]{1,6}' if word[1] == 'share' else '[1-9][0-9]{0,2}'})"


def _fill(value: Any, numbers: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**numbers)
    if isinstance(value, list):
        return [_fill(item, numbers) for item in value]
    return {key: _fill(item, numbers) for key, item in value.items()} if isinstance(value, dict) else value
