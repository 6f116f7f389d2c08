"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

SiteName = Annotated[str | None, typer.Option("--site", help="Site by name or file; by default the study's.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override the study: --set train.steps=50.")
]
Output = Annotated[Path | None, typer.Option("--output", help="File to write, in place of the terminal.")]
Plots = Annotated[
    Path | None, typer.Option("--plots", metavar="DIR", help="Directory to write all figures to, as SVG and PNG.")
]


def offer_formats(names: str, more: str = "") -> Any:
    """Return the option `--format`.

    Parameters
    ----------
    names
        Names of the formats, with ``|`` between them.
    more
        Additional sentence for the help text.
    """
    return typer.Option(
        "--format", metavar=names, help=f"Format; by default that of the suffix of --output.{more and ' ' + more}"
    )
