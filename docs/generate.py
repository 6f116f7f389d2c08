"""Generator of docs/reference/cli.md, study.md, site.md and the tables of records.md from the declarations in the code.

    python docs/generate.py [--check]

With --check, the script changes nothing. It prints a line for each outdated page. If there is any, the exit status is
1.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

REFERENCE = Path(__file__).resolve().parent / "reference"
MADE = "<!-- made by docs/generate.py: change the code's own descriptions, then run make docs -->"
TABLES = ("<!-- tables: begin -->\n", "<!-- tables: end -->\n")
ABOUT = {
    "study": "A study describes a comparison. `hpcbench submit` reads it; `--set KEY=VALUE` changes single values.",
    "site": "A site file describes one machine. [A new site](../how-to/new-site.md) explains how to write one.",
}


def write_pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    return {
        "cli.md": write_cli_page(),
        "study.md": write_schema_page("study"),
        "site.md": write_schema_page("site"),
        "records.md": fill_records_page((REFERENCE / "records.md").read_text(encoding="utf-8")),
    }


def fill_records_page(page: str) -> str:
    """Return the page of the export with its version and its tables replaced. The other text is written by hand."""
    from hpcbench.report.export import VERSION, describe_tables

    page, versions = re.subn(r"(?m)^Version \d+\. ", f"Version {VERSION}. ", page)
    before, begin, remainder = page.partition(TABLES[0])
    _, end, after = remainder.partition(TABLES[1])
    if not (versions == 1 and begin and end):
        raise SystemExit("docs/reference/records.md: needs a line 'Version N. ' and both comments 'tables:'")
    return f"{before}{begin}\n{describe_tables()}\n{end}{after}"


def write_cli_page() -> str:
    """Return a page with the arguments and options of every command, as printed by ``--help``."""
    from hpcbench.cli import app

    lines = ["# Command line", "", MADE, "", "`hpcbench COMMAND --help` prints the same.", "", EXITS, ""]
    for name, command in list_commands("hpcbench", typer.main.get_command(app)):
        lines += [f"## {name}", "", " ".join((command.help or "").split()), ""]
        lines += format_parameters(command)
    return "\n".join(lines).rstrip() + "\n"


_NO_LIMIT = 10**9
"""Smallest absolute value of a bound that is left out of the pages, because it only excludes absurd values."""
EXITS = (
    "The exit status is 0 on success, 1 if a run failed, a verdict is bad or something needed does not work, and 2 if "
    "the input is wrong."
)


def list_commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """List a command or, for a group, all commands below it, each with its full name."""
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
        return
    for child_name, child in children.items():
        yield from list_commands(f"{name} {child_name}", child)


def format_parameters(command: Any) -> list[str]:
    """Return a table of the arguments and options of a command."""
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            usage = parameter.metavar or parameter.name.upper()
        else:
            value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
            usage = ", ".join([*parameter.opts, *parameter.secondary_opts]) + value
        default = parameter.default
        has_default = isinstance(default, (str, int, float)) and not isinstance(default, bool) and default != ""
        cells = [f"`{usage}`", getattr(parameter, "help", None) or "", f"`{default}`" if has_default else ""]
        rows.append(f"| {' | '.join(map(escape_cell, cells))} |")
    return ["| | meaning | default |", "| --- | --- | --- |", *rows, ""] if rows else []


def write_schema_page(what: str) -> str:
    """Return a page with a table of fields for each section of a file, the outermost section first."""
    command = [sys.executable, "-m", "hpcbench", "schema", what]
    schema = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    lines = [f"# Fields of a {what}", "", MADE, "", ABOUT[what], ""]
    lines += [f"`hpcbench schema {what}` prints the same as JSON Schema, for editors.", ""]
    for title, section in {f"the {what}": schema, **schema.get("$defs", {})}.items():
        lines += [f"## {title[0].upper()}{title[1:]}", "", " ".join(section.get("description", "").split()), ""]
        if "properties" not in section:
            lines += [f"{describe_value(section)}.", ""]
            continue
        required = section.get("required", [])
        lines += ["| field | value | meaning | default |", "| --- | --- | --- | --- |"]
        for name, field in section["properties"].items():
            default = "required" if name in required else format_default(field)
            cells = [f"`{name}`", describe_value(field), field.get("description", ""), default]
            lines.append(f"| {' | '.join(map(escape_cell, cells))} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def describe_value(field: dict[str, Any]) -> str:
    """Describe the values that a field accepts; a section is a link to its table."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if "anyOf" in field:
        kinds = (describe_value(option) for option in field["anyOf"] if option.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if field.get("type") == "array":
        return f"list of {describe_value(field.get('items', {}))}"
    if field.get("type") == "object":
        values = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")]
        value_schema = next((value for value in values if isinstance(value, dict)), None)
        return f"by name: {describe_value(value_schema)}" if value_schema else "fields"
    return {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true`, `false`"}.get(
        field.get("type", ""), "any"
    ) + format_limits(field)


def format_limits(field: dict[str, Any]) -> str:
    """Return the bounds of a number that are not absurdly large."""
    phrases = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [
        f"{phrase} {field[key]:,}" for key, phrase in phrases.items() if abs(field.get(key, _NO_LIMIT)) < _NO_LIMIT
    ]
    return f", {', '.join(bounds)}" if bounds else ""


def format_default(field: dict[str, Any]) -> str:
    """Return the default in YAML, or an empty string for a field that may be absent."""
    default = field.get("default")
    return "" if default in (None, [], {}) else f"`{json.dumps(default)}`"


def escape_cell(text: str) -> str:
    """Return text that fits one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the pages, or check them, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="print the pages that differ, and change nothing")
    check = parser.parse_args().check
    differing_pages = 0
    for name, text in write_pages().items():
        path = REFERENCE / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        differing_pages += 1
        if check:
            print(f"{path}: not current: make docs writes it")
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and differing_pages > 0)


if __name__ == "__main__":
    sys.exit(main())
