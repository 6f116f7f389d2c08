"""Writes docs/reference/cli.md, study.md and site.md from the command line's and the files' own declarations.

    python docs/generate.py [--check]

--check changes nothing: it prints a line for each page that is not current, and its exit status is then 1.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

REFERENCE = Path(__file__).resolve().parent / "reference"
MADE = "<!-- made by docs/generate.py: change the code's own descriptions, then run make docs -->"
ABOUT = {
    "study": "A study says what to compare. `hpcbench submit` reads it; `--set KEY=VALUE` changes single values of it.",
    "site": "A site file says what one machine is like. [A new site](../how-to/new-site.md) tells how to write one.",
}


def pages() -> dict[str, str]:
    """Text of each page, by its file's name."""
    return {"cli.md": cli_page(), "study.md": schema_page("study"), "site.md": schema_page("site")}


def cli_page() -> str:
    """Every command with its arguments and options, as ``--help`` has them."""
    from hpcbench.cli import app

    lines = ["# Command line", "", MADE, "", "`hpcbench COMMAND --help` prints the same.", "", EXITS, ""]
    for name, command in commands("hpcbench", typer.main.get_command(app)):
        lines += [f"## {name}", "", " ".join((command.help or "").split()), ""]
        lines += parameters(command)
    return "\n".join(lines).rstrip() + "\n"


_NO_LIMIT = 10**9
"""Bounds from here on only keep nonsense out."""
EXITS = (
    "The exit status is 0 if all is done, 1 if a run failed, a verdict is bad or something needed does not work, and 2 "
    "if the input is wrong."
)


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """All commands below one, each with the words that call it."""
    below = getattr(command, "commands", None)
    if not below:
        yield name, command
        return
    for word, own in below.items():
        yield from commands(f"{name} {word}", own)


def parameters(command: Any) -> list[str]:
    """A table of a command's arguments and options."""
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            words = parameter.metavar or parameter.name.upper()
        else:
            value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
            words = ", ".join([*parameter.opts, *parameter.secondary_opts]) + value
        default = parameter.default
        plain = isinstance(default, (str, int, float)) and not isinstance(default, bool) and default != ""
        rows.append(f"| {cell(f'`{words}`')} | {cell(getattr(parameter, 'help', None) or '')} "
                    f"| {cell(f'`{default}`' if plain else '')} |")  # fmt: skip
    return ["| | meaning | default |", "| --- | --- | --- |", *rows, ""] if rows else []


def schema_page(what: str) -> str:
    """Every field of a file, a table for each section, the outermost first."""
    asked = [sys.executable, "-m", "hpcbench", "schema", what]
    schema = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    lines = [f"# Fields of a {what}", "", MADE, "", ABOUT[what], ""]
    lines += [f"`hpcbench schema {what}` prints the same as JSON Schema, for editors.", ""]
    for name, section in {f"the {what}": schema, **schema.get("$defs", {})}.items():
        lines += [f"## {name[0].upper()}{name[1:]}", "", " ".join(section.get("description", "").split()), ""]
        if "properties" not in section:
            lines += [f"{kind(section)}.", ""]
            continue
        required = section.get("required", [])
        lines += ["| field | value | meaning | default |", "| --- | --- | --- | --- |"]
        for field, own in section["properties"].items():
            default = "required" if field in required else shown_default(own)
            words = [f"`{field}`", kind(own), own.get("description", ""), default]
            lines.append(f"| {' | '.join(cell(word) for word in words)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def kind(own: dict[str, Any]) -> str:
    """What may stand in a field, in words; a section is a link to its table."""
    if "$ref" in own:
        name = own["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in own or "const" in own:
        return ", ".join(f"`{value}`" for value in own.get("enum", [own.get("const")]))
    if "anyOf" in own:
        return " or ".join(dict.fromkeys(kind(one) for one in own["anyOf"] if one.get("type") != "null"))
    if own.get("type") == "array":
        return f"list of {kind(own.get('items', {}))}"
    if own.get("type") == "object":
        values = [*own.get("patternProperties", {}).values(), own.get("additionalProperties")]
        named = next((value for value in values if isinstance(value, dict)), None)
        return f"by name: {kind(named)}" if named else "fields"
    return {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true`, `false`"}.get(
        own.get("type", ""), "any"
    ) + limits(own)


def limits(own: dict[str, Any]) -> str:
    """The bounds of a number that a user may meet."""
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    found = [f"{word} {own[key]:,}" for key, word in words.items() if abs(own.get(key, _NO_LIMIT)) < _NO_LIMIT]
    return f", {', '.join(found)}" if found else ""


def shown_default(own: dict[str, Any]) -> str:
    """The default as YAML would have it; nothing where a field is simply absent."""
    default = own.get("default")
    return "" if default in (None, [], {}) else f"`{json.dumps(default)}`"


def cell(text: str) -> str:
    """Text that fits one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the pages, or check them; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what differs, and change nothing")
    check = parser.parse_args().check
    differing = 0
    for name, text in pages().items():
        path = REFERENCE / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        differing += 1
        if check:
            print(f"{path}: not current: make docs writes it")
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
