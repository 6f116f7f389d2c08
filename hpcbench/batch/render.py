"""Job scripts from templates: every value quoted by one filter, every directive written by one function."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from hpcbench import __version__
from hpcbench.batch.duration import Duration
from hpcbench.batch.launchers import export_words
from hpcbench.batch.shape import Shape
from hpcbench.batch.site import Site
from hpcbench.resources import data_dir

if TYPE_CHECKING:
    from jinja2 import Environment

_DIRECTIVE = re.compile(r"^#(BSUB|SBATCH|flux:)", re.MULTILINE)
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._+=@:,~-]*")


@dataclass(frozen=True)
class Job:
    """What a scheduler is handed: runs that share an allocation."""

    id: str
    runs: list[str]
    """Ids of the runs, in the order in which they run."""
    shape: Shape
    launch: list[str]
    """Argument list of the launcher."""
    python: str
    """The interpreter of the ranks."""
    walltime: Duration | None
    queue: str | None
    account: str | None
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables that single runs have beyond the site's, by the run's id."""
    clear: Sequence[str] = ()
    """Variables of any scheme of the study: what the submitter's shell says of them must reach no run."""


def quote(value: object) -> str:
    """A value as one word of a shell script.

    Raises
    ------
    ValueError
        It has a newline or a NUL, which would let it out of its line.
    """
    text = str(value)
    if re.search(r"[\x00\r\n]", text):
        raise ValueError(f"{text!r} has a line break or NUL in it: it cannot stand in a job script")
    return shlex.quote(text)


def directive(sentinel: str, option: str, value: object = None) -> str:
    """One line of the script's head; the only place that writes one.

    Parameters
    ----------
    sentinel
        ``#BSUB`` or ``#SBATCH``.
    value
        None for an option without one.
    """
    if value is None:
        return f"{sentinel} {option}"
    return f"{sentinel} {option}{'=' if option.startswith('--') else ' '}{quote(value)}"


def render(job: Job, *, site: Site, study: str, root: str) -> str:
    """The job's script.

    Parameters
    ----------
    root
        Absolute path of the submission's directory.

    Raises
    ------
    ValueError
        A value cannot stand in a script, or stands where a scheduler would take it for a directive.
    """
    heads = {"local": _no_head, "slurm": _slurm_head, "lsf": _lsf_head}
    directives = heads[site.scheduler.kind](job, site, study, root)
    template = _environment().get_template(f"{site.scheduler.kind}.sh.j2")
    text = template.render(
        version=__version__,
        job=job,
        site=site,
        study=study,
        root=root,
        launch=job.launch,
        python=job.python,
        threads=job.shape.threads,
        directives=directives,
        calls=[(run, *_own_environment(job, run, site)) for run in job.runs],
    )
    if len(_DIRECTIVE.findall(text)) != len(directives):
        raise ValueError(f"job {job.id}: a value reads as a directive of the scheduler: change it")
    return text + "\n"


def _own_environment(job: Job, run: str, site: Site) -> tuple[list[str], list[str]]:
    """What stands before and after the launch line of a run that has variables of its own.

    `env` sets them: an assignment of the shell's would meet the variables of the script, and reach all its commands.
    """
    own = job.environments.get(run, {})
    before = ["env", *(f"{name}={value}" for name, value in own.items())] if own else []
    return before, export_words(own, site)


@cache
def _environment() -> "Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")), undefined=jinja2.StrictUndefined, autoescape=False
    )
    environment.filters["q"] = quote
    return environment


def _no_head(job: Job, site: Site, study: str, root: str) -> list[str]:
    return []


def _slurm_head(job: Job, site: Site, study: str, root: str) -> list[str]:
    """Every count is said: what Slurm derives from what differs by version. A requeued run would be another sample."""
    _check_path(root)
    shape = job.shape
    options: list[tuple[str, object]] = [
        ("--job-name", f"{study}-{job.id}"),
        ("--nodes", shape.nodes),
        ("--ntasks", shape.ranks),
        ("--ntasks-per-node", shape.ranks_per_node),
    ]
    if site.launcher.kind != "ibrun":
        options.append(("--cpus-per-task", shape.cores_per_rank * site.node.threads_per_core))
    options += _common_head(job, site, ("--time", lambda d: d.slurm()), "--partition")
    options += [
        ("--chdir", root),
        ("--output", f"{root}/jobs/{job.id}/out.log"),
        ("--open-mode", "append"),
        ("--no-requeue", None),
    ]
    return [directive("#SBATCH", *option) for option in _with_extras(options, site)]


def _lsf_head(job: Job, site: Site, study: str, root: str) -> list[str]:
    """The easy mode of Sierra-class machines: -nnodes, and never -n or -R, which exclude it."""
    _check_path(root)
    options: list[tuple[str, object]] = [("-J", f"{study}-{job.id}"), ("-nnodes", job.shape.nodes)]
    options += _common_head(job, site, ("-W", lambda d: d.lsf()), "-q")
    options += [("-cwd", root), ("-o", f"{root}/jobs/{job.id}/out.log")]
    options = _with_extras(options, site)
    forbidden = [option for option, _ in options if option in ("-n", "-R")]
    if forbidden:
        raise ValueError(f"{forbidden[0]} excludes -nnodes: remove it from scheduler.directives")
    return [directive("#BSUB", *option) for option in options]


def _common_head(job: Job, site: Site, walltime: tuple[str, object], queue_option: str) -> list[tuple[str, object]]:
    option, write = walltime
    found: list[tuple[str, object]] = []
    if job.walltime is not None:
        found.append((option, write(job.walltime)))  # type: ignore[operator]
    if job.queue is not None:
        found.append((queue_option, job.queue))
    if job.account is not None and site.scheduler.account_option is not None:
        found.append((site.scheduler.account_option, job.account))
    return found


def _with_extras(options: Sequence[tuple[str, object]], site: Site) -> list[tuple[str, object]]:
    names = {option for option, _ in options}
    for option in site.scheduler.directives:
        if option in names:
            raise ValueError(f"{option} is set by hpcbench: remove it from scheduler.directives")
    return [*options, *site.scheduler.directives.items()]


def _check_path(root: str) -> None:
    """Schedulers expand and cut what they find in a path of a directive; quoting differs among their versions."""
    if not _PLAIN_PATH.fullmatch(root):
        raise ValueError(
            f"{root!r}: Slurm and LSF need a path of letters, digits and / . _ + = @ : , ~ - alone: use --out"
        )
