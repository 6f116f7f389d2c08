"""Commands for sites, schemes, schemas, and this machine."""

from pathlib import Path
from typing import Annotated

import typer

from hpcbench.errors import UserError


def sites(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE | check FILE...]", help="A site to show, or site files to check."),
    ] = None,
) -> None:
    """List all sites, show a site, or check site files. The exit status is 2 if a file has faults."""
    from hpcbench.batch.sites.show_site import check_sites, show_site, show_sites

    if not arguments:
        show_sites()
    elif arguments[0] == "check":
        raise typer.Exit(check_sites(arguments[1:]))
    elif len(arguments) > 1:
        raise UserError(
            f"sites: name only one site to show, or check files with `hpcbench sites check {arguments[0]} ...`"
        )
    else:
        show_site(arguments[0])


def schemes(
    name: Annotated[str | None, typer.Argument(help="Scheme or system to show; by default all are listed.")] = None,
) -> None:
    """List scheme presets and other systems, or show one in detail."""
    from hpcbench.study.show_schemes import show_scheme, show_schemes

    show_scheme(name) if name else show_schemes()


def schema(what: Annotated[str, typer.Argument(metavar="study|site")] = "study") -> None:
    """Print the JSON Schema of study or site files, for editors."""
    import json

    if what == "study":
        from hpcbench.study.schema import json_schema
    elif what == "site":
        from hpcbench.batch.sites.site import json_schema
    else:
        raise UserError(f"unknown schema {what!r}: use study or site")
    typer.echo(json.dumps(json_schema(), indent=2))


def doctor(
    site: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Site whose requirements are checked; by default this machine's."),
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Also start two ranks with the launcher on a cluster, and one in the site's container."
        ),
    ] = False,
    json: Annotated[Path | None, typer.Option(help="File for the findings.")] = None,
    draft_site: Annotated[
        bool, typer.Option("--draft-site", help="Print a draft of a site file for this machine instead.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the drafted site; by default the cluster's.")] = None,
) -> None:
    """Check this machine, or draft a site file. The exit status is 1 if a requirement is not met."""
    if draft_site:
        from hpcbench.doctor.draft_site import draft

        typer.echo(draft(name), nl=False)
        return
    if name is not None:
        raise UserError("--name: is only for a drafted site: add --draft-site, or use --site")
    from hpcbench.doctor.examine import examine
    from hpcbench.doctor.show_checks import show, write
    from hpcbench.present.results import check_output

    check_output("--json", json)
    checks = examine(site, run=run)
    show(checks)
    if json is not None:
        try:
            write(checks, json)
        except OSError as error:
            raise UserError(f"--json {json}: cannot be written: {error.strerror}: choose another file") from None
    raise typer.Exit(int(any(check.failed for check in checks)))
