"""Scheduler access for existing submissions."""

from pathlib import Path

from pydantic import ValidationError

from hpcbench.batch.schedulers.scheduler import JobScheduler, scheduler_class
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.files import read_json, shown_path


def open_site(root: Path) -> Site:
    """Load the site stored in a submission.

    Raises
    ------
    UserError
        The submission's ``site.json`` is missing or damaged.
    """
    try:
        return Site.model_validate(read_json(root / "site.json"))
    except ValidationError:
        name = shown_path(root / "site.json")
        raise UserError(f"{name}: is missing or damaged, so the scheduler cannot be queried") from None


def open_scheduler(root: Path) -> JobScheduler:
    """Return the scheduler of the submission at `root`."""
    root = root.absolute()
    site = open_site(root)
    return scheduler_class(site.scheduler.kind)(root, site)
