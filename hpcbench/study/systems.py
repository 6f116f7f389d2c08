"""Presets for compression systems of other projects. Schemes of program studies name a preset in `system`."""

from functools import cache
from typing import Any

from pydantic import Field

from hpcbench.contract.problems import show, suggest
from hpcbench.contract.section import Line, Section
from hpcbench.study.presets import read_table


class SystemPreset(Section):
    """A compression system of another project: method, requirements, and settings that enable it."""

    title: Line
    source: Line
    versions: Line
    needs: Line
    """Required software and settings."""
    limits: Line
    checked: Line
    """Date and machine of a test run with this preset, or ``never``."""
    asks: list[Line]
    """Fields that the study must add, such as ``preload``."""
    framework: Line = ""
    """Framework whose programs `hpcbench tune` runs with this system.

    The name is empty if `tune` does not try the system.
    """
    command_words: list[Line] = Field(default_factory=list)
    """Words in a program's command from which `tune` concludes that the system's requirements are met."""
    scheme: dict[str, Any] = Field(description="Fields of the scheme.")


@cache
def read_systems() -> dict[str, SystemPreset]:
    """Return all presets, keyed by name."""
    return {name: SystemPreset.model_validate(fields) for name, fields in read_table("systems").items()}


def add_system(fields: dict[str, Any]) -> dict[str, Any]:
    """Merge the fields of a scheme and its system. The scheme's own fields take precedence.

    Raises
    ------
    ValueError
        The system does not exist, or a required field is missing.
    """
    name = fields.get("system")
    if not isinstance(name, str):
        return fields
    systems = read_systems()
    if name not in systems:
        raise ValueError(
            f"system {show(name)} is unknown{suggest(name, list(systems))}: use one of {', '.join(systems)}"
        )
    preset = systems[name]
    merged = {**preset.scheme, **fields}
    own_variables = fields.get("environment", {})
    if "environment" in preset.scheme and isinstance(own_variables, dict):
        merged["environment"] = {**preset.scheme["environment"], **own_variables}
    for path in preset.asks:
        key, _, inner = path.partition(".")
        value = merged.get(key)
        if not value or (inner and not (isinstance(value, dict) and inner in value)):
            raise ValueError(f"system {name} needs {path}: add it to the scheme ({preset.needs})")
    return merged
