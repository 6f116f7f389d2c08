"""Options of hpcbench's own that a site turns away: what does their work instead, and what is lost without them."""

from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.site import Site

_TOGETHER = {"lsf": (("-wa", "-wt"),)}
"""Options of which neither stands without the other."""
_SPARED: dict[str, dict[str, str]] = {
    "lsf": {
        "-wa": "",
        "-wt": "",
        "-cwd": "",
        "-rn": "LSF may run a job again by itself after a host has failed, where its queue says so",
        "-r": "LSF does not run a job again by itself after a host has failed",
    },
    "slurm": {
        "--signal": "",
        "--chdir": "",
        "--no-requeue": "Slurm may run a job again by itself after a node has failed",
        "--requeue": "a job may not be allowed to go back into its queue",
        "--open-mode": "the log of a job that goes back into its queue may begin anew",
    },
    "flux": {"--cwd": ""},
}
"""Options that a script can be without, and what is lost then. Where that is nothing, the script does it itself: it
changes directory and keeps the time."""


def left_out(site: Site) -> set[str]:
    """Options of ours that no script for the site has.

    Raises
    ------
    ValueError
        One of them is needed.
    """
    spared = _SPARED.get(site.scheduler.kind, {})
    found = spared.keys() & set(site.scheduler.refuses)
    for group in _TOGETHER.get(site.scheduler.kind, ()):
        if found.intersection(group):
            found.update(group)
    return found


def check_needed(site: Site, options: set[str]) -> None:
    """Refuse a script whose needed options the site turns away.

    Raises
    ------
    ValueError
        It does; the first of them.
    """
    needed = [option for option in site.scheduler.refuses if option in options]
    if needed:
        raise ValueError(f"{needed[0]} is among scheduler.refuses, and no job can be asked for without it: remove it")


def lost(job: Job, site: Site) -> list[str]:
    """What a job goes without because the site turns an option away; one line each."""
    wanted = {"-r", "--requeue"} if job.requeue else {"-rn", "--no-requeue"}
    others = {"-r", "-rn", "--requeue", "--no-requeue"} - wanted
    spared = _SPARED.get(site.scheduler.kind, {})
    return [
        f"{option} is left out, for {site.site} refuses it: {spared[option]}"
        for option in sorted(left_out(site))
        if spared[option] and option not in others
    ]
