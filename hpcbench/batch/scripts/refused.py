"""Scheduler options that a site refuses, and the consequences for a job."""

from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.site import Site

_TOGETHER = {"lsf": (("-wa", "-wt"),)}
"""Options that are only valid together."""
_SPARED: dict[str, dict[str, str]] = {
    "lsf": {
        "-wa": "",
        "-wt": "",
        "-cwd": "",
        "-rn": "LSF may run a job again after a host failure if its queue is RERUNNABLE",
        "-r": "LSF does not run a job again after a host failure",
    },
    "slurm": {
        "--signal": "",
        "--chdir": "",
        "--no-requeue": "Slurm may run a job again after a node failure",
        "--requeue": "Slurm may refuse to requeue a job",
        "--open-mode": "the log of a requeued job may be overwritten",
    },
    "flux": {"--cwd": ""},
}
"""Optional scheduler options, and the consequence of omitting each.

The consequence is empty if the script performs the option's task itself, such as changing the directory.
"""


def left_out(site: Site) -> set[str]:
    """Return hpcbench's options that are omitted from the site's scripts."""
    spared = _SPARED.get(site.scheduler.kind, {})
    options = spared.keys() & set(site.scheduler.refuses)
    for group in _TOGETHER.get(site.scheduler.kind, ()):
        if options.intersection(group):
            options.update(group)
    return options


def check_needed(site: Site, options: set[str]) -> None:
    """Raise an error if the site refuses a required option."""
    needed = [option for option in site.scheduler.refuses if option in options]
    if needed:
        raise ValueError(
            f"{needed[0]} is in scheduler.refuses, but every job needs this option: remove it from the list"
        )


def lost(job: Job, site: Site) -> list[str]:
    """Describe how each refused option affects a job, one line each."""
    wanted = {"-r", "--requeue"} if job.requeue else {"-rn", "--no-requeue"}
    others = {"-r", "-rn", "--requeue", "--no-requeue"} - wanted
    spared = _SPARED.get(site.scheduler.kind, {})
    return [
        f"{option} is left out because {site.site} refuses it: {spared[option]}"
        for option in sorted(left_out(site))
        if spared[option] and option not in others
    ]
