"""Loading of site files, by path or by the name of a built-in site."""

import os.path
from pathlib import Path

from pydantic import ValidationError

from hpcbench.batch.sites.find_launcher import find_kind
from hpcbench.batch.sites.site import Site
from hpcbench.batch.sites.site_rules import faults
from hpcbench.contract.problems import make_user_error, show, suggest
from hpcbench.errors import UserError
from hpcbench.files import exists, shown_path
from hpcbench.resources import data_dir
from hpcbench.study.find_scheme import Offer
from hpcbench.study.yaml12 import YamlDocument, read


def site_names() -> list[str]:
    """Return the names of built-in sites."""
    return sorted(path.stem for path in data_dir("sites").glob("*.yaml"))


def sites_with(scheme: str) -> list[str]:
    """Return the names of built-in sites that define a scheme."""
    return [name for name in site_names() if scheme in load_site(name)[0].schemes]


def offer(site: Site) -> Offer:
    """Return the schemes that the site offers to studies, and a function that finds the sites that define a scheme."""
    return Offer(site.site, site.schemes, sites_with)


def load_site(name: str, where: str = "--site") -> tuple[Site, YamlDocument]:
    """Load a site by name or from a file.

    Parameters
    ----------
    name
        A name from `site_names()`, or a path, which contains a slash or ends in ``.yaml``.
    where
        Option or line that specifies the site, for error messages.

    Raises
    ------
    UserError
        The site does not exist, or its file is invalid.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(os.path.expanduser(name))  # noqa: PTH111 (Path.expanduser raises for unknown users)
        if not exists(path):
            raise UserError(
                f"{where}: site file {shown_path(path)} does not exist (paths are relative to the working directory): "
                "check the path"
            )
    elif name in site_names():
        path = data_dir("sites") / f"{name}.yaml"
    else:
        near = suggest(name, site_names())
        file = next((Path(f"{name}{suffix}") for suffix in (".yaml", ".yml") if exists(Path(f"{name}{suffix}"))), None)
        if file is not None:
            raise UserError(
                f"{where}: unknown site {show(name)}: for the file {shown_path(file)}, write ./{shown_path(file)}"
            )
        raise UserError(
            f"{where}: unknown site {show(name)}{near}: use one of {', '.join(site_names())}, or give a site file"
        )
    document = read(path)
    try:
        site = Site.model_validate(document.data)
    except ValidationError as error:
        raise make_user_error(error, Site, document.where) from None
    if site.launcher.kind == "auto":
        kind = find_kind(site.launcher.program)
        site = site.model_copy(update={"launcher": site.launcher.model_copy(update={"kind": kind})})
    if site.templates is not None:
        try:
            site = site.model_copy(update={"templates": str(template_directory(site.templates, path))})
        except ValueError as error:
            raise UserError(f"{document.where(('templates',))}: templates: {error}") from None
    if site.site != path.stem and name in site_names():
        raise UserError(
            f"{document.where(('site',))}: site: {site.site!r} differs from the file name, {shown_path(path.stem)}: "
            "use the same name"
        )
    site_faults = faults(site)
    if site_faults:
        raise UserError(*(fault.line(document) for fault in site_faults))
    return site, document


def template_directory(templates: str, path: Path) -> Path:
    """Return the absolute path of a site's template directory.

    Raises
    ------
    ValueError
        The path is not a directory.
    """
    directory = (path.parent / templates).resolve()
    if not (exists(directory) and directory.is_dir()):
        raise ValueError(
            f"{shown_path(directory)} is not a directory (paths are relative to the directory of the site file)"
        )
    return directory
