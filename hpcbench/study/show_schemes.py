"""Listing of scheme presets and of the compression systems of other projects."""

from typing import Any

import typer

from hpcbench.contract.problems import show, suggest
from hpcbench.contract.scheme import Scheme
from hpcbench.errors import UserError
from hpcbench.study import presets
from hpcbench.study.systems import SystemPreset, read_systems


def show_schemes() -> None:
    """Print one line per preset: first hpcbench's schemes, then the systems of other projects."""
    names = presets.schemes()
    width = max(map(len, [*names, *read_systems()]))
    typer.echo("Schemes of hpcbench, for all studies and `hpcbench run`:")
    for name in names:
        typer.echo(f"  {name:{width}s}  {summarize(presets.read_table('schemes')[name])}")
    typer.echo(
        "\nSystems of other projects, for studies of a program (`hpcbench schemes NAME` shows requirements and limits):"
    )
    for name, preset in read_systems().items():
        asked = f"; add {', '.join(preset.asks)}" if preset.asks else ""
        typer.echo(f"  {name:{width}s}  {preset.title}{asked} (checked: {preset.checked})")


def show_scheme(name: str) -> None:
    """Print details of a preset."""
    systems = read_systems()
    if name in systems:
        _show_system(systems[name])
    elif presets.is_scheme(name):
        typer.echo(summarize(presets.scheme(name)))
    else:
        near = suggest(name, [*presets.schemes(), *systems])
        raise UserError(f"schemes: {show(name)} is unknown{near}: list all names with `hpcbench schemes`")


def _show_system(preset: SystemPreset) -> None:
    for label, text in (
        ("title", preset.title),
        ("source", preset.source),
        ("versions", preset.versions),
        ("needs", preset.needs),
        ("limits", preset.limits),
        ("checked", preset.checked),
        ("sets", Scheme.model_validate(preset.scheme).process_changes or "-"),
        ("add in the study", ", ".join(preset.asks) or "-"),
    ):
        typer.echo(f"{label:16s}  {text}")


def summarize(fields: dict[str, Any]) -> str:
    """Summarize the algorithm and codecs of a scheme."""
    if fields["algorithm"] == "native":
        return "uncompressed, with the collectives of the library"
    parts = []
    for rule in reversed(fields["rules"]):  # the last rule that matches applies
        traffic = " ".join(rule[key] for key in ("dimension", "phase", "kind", "axis") if key in rule)
        feedback = " with feedback" if rule.get("feedback") else ""
        feedback += f" averaged by {rule['feedback_average']}" if rule.get("feedback_average") else ""
        feedback += f" with rank {rule['low_rank']}" if rule.get("low_rank") else ""
        feedback += " of changes per sample" if rule.get("sample_changes") else ""
        feedback += f" with mixed widths of {rule['mixed_bits']} bits" if rule.get("mixed_bits") else ""
        feedback += " of differences" if rule.get("differences") else ""
        steps = [
            f"{word} step {rule[key]}" for word, key in (("from", "from_step"), ("until", "until_step")) if key in rule
        ]
        parts.append(" ".join([f"{traffic or 'all'} {rule['codec']}{feedback}", *steps]))
    parts.append(f"{'all else' if parts else 'all traffic'} {fields['default']}")
    return f"algorithm {fields['algorithm']}: {', '.join(parts)}"
