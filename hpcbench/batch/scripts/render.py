"""Rendering of job scripts from templates. The Jinja filter ``q`` quotes user-supplied values."""

import re
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import __version__
from hpcbench.batch.scripts.containers import contained
from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.heads import head, smuggles
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.launchers import HOST_FILE, export_words
from hpcbench.batch.scripts.overrides import check_overrides
from hpcbench.batch.scripts.quoting import quote_words
from hpcbench.batch.sites.site import Site
from hpcbench.contract.problems import show
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.resources import data_dir

if TYPE_CHECKING:
    from jinja2 import Environment

_OF_BASH = re.compile(
    r"_|IFS|E?UID|PPID|GROUPS|SECONDS|RANDOM|SRANDOM|LINENO|OPTIND|OPTARG|FUNCNAME|PIPESTATUS|DIRSTACK|HISTCMD|COMP_.*"
    r"|SHELLOPTS|BASH.*|EPOCH.*|POSIXLY_CORRECT"
)
"""Variables that bash sets, or that change how bash parses a script."""
OF_SCRIPT = frozenset(
    re.findall(
        r"\w+",
        "again attempt child claim commands id idle interpreter job launch name noted ours outer result root runs "
        "signals status text worker",
    )
)
"""Variables used by the scripts themselves."""
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def render(job: Job, *, site: Site, study: str, root: str) -> str:
    """Render a job script.

    Parameters
    ----------
    root
        Absolute path of the submission's directory.

    Raises
    ------
    ValueError
        A value cannot be written into a script, or a scheduler would read it as a directive.
    UserError
        A template of the site is invalid. The message contains the file and line number.
    """
    for name in (job.id, *job.runs):
        if not _ID.fullmatch(name):
            raise ValueError(f"{show(name)} cannot be the name of a directory: use only letters, digits and . _ -")
    if job.walltime is not None and job.stop_ahead >= job.walltime:
        raise ValueError(f"stop_ahead: {job.stop_ahead} is not shorter than the walltime, {job.walltime}: shorten it")
    for variable in site.environment:
        if _OF_BASH.fullmatch(variable) or variable in OF_SCRIPT:
            raise ValueError(
                f"environment: {variable} is a variable of the job script itself: set it in a wrapper script around "
                "python"
            )
    inside: list[str] = []
    if job.container is not None:
        names = ("OMP_NUM_THREADS", *site.environment, *job.clear)
        each = 1 if job.once_a_node else job.shape.ranks_per_node
        arguments = contained(job.container, site, ranks_per_node=each, root=root, reads=job.reads, names=names)
        inside, job = arguments.inside, replace(job, launch=[*job.launch, *arguments.launch])
    host_file = f"{root}/jobs/{job.id}/hosts" if HOST_FILE in job.launch else None
    job = replace(job, launch=[str(host_file) if word == HOST_FILE else word for word in job.launch])
    directives = head(job, site, name=job.name or f"{study}-{job.id}", root=root, log=f"jobs/{job.id}/out.log")
    return _script(
        f"{site.scheduler.kind}.sh.j2",
        site,
        directives,
        job=job,
        study=study,
        root=root,
        inside=inside,
        options=_driver_options(job, site, host_file),
        interpreters=list(dict.fromkeys([job.driver, job.outside or job.python])),
        requeues=job.requeue > 0 and site.scheduler.kind != "flux",
        calls=[(run, *_set_variables(job, run, site)) for run in job.runs],
    )


def render_array(
    name: str,
    jobs: Sequence[Job],
    *,
    site: Site,
    study: str,
    root: str,
    throttle: int | None = None,
) -> tuple[str, str]:
    """Render an array script, ``arrays/NAME.sh``, and the list that the script reads, ``arrays/NAME.txt``.

    Parameters
    ----------
    name
        Name in the queue.
    jobs
        Jobs of the array. Element k + 1 runs job k. All jobs must request the same resources.
    site, study, root
        As in `render`.
    throttle
        Maximum number of simultaneously running jobs.

    Raises
    ------
    ValueError
        The jobs request different resources, the scheduler does not support arrays, or a value is invalid as in
        `render`.
    """
    if site.scheduler.kind not in ("slurm", "lsf"):
        raise ValueError(f"{site.scheduler.kind} has no job arrays")
    if not _ID.fullmatch(name):
        raise ValueError(f"{show(name)} cannot be the name of an array: use only letters, digits and . _ -")
    if len({_get_resources(job) for job in jobs}) != 1:
        raise ValueError(f"array {name}: its jobs differ in shape, limits, queue or account")
    limit = f"%{throttle}" if throttle else ""
    if site.scheduler.kind == "slurm":
        index, elements = "%a", f"1-{len(jobs)}{limit}"
    else:
        index, elements = "%I", f"[1-{len(jobs)}]{limit}"
    log = f"arrays/{name}.{index}.log"

    directives = head(replace(jobs[0], name=name), site, name=name, root=root, log=log, array=elements)
    text = _script("array.sh.j2", site, directives, study=study, root=root, list=f"arrays/{name}.txt")
    return text, "".join(f"{job.id}\n" for job in jobs)


RELAY = "after/relay.sh"
"""Script of relay jobs. A relay job does nothing but wait for a part of a long list of jobs."""


def render_relay(job: Job, *, site: Site, study: str, root: str) -> str:
    """Render the script of a relay job with the settings of `job`, on as few nodes as the queue allows."""
    queue = site.queues.get(job.queue or "")
    nodes = max(1, (queue.min_nodes if queue else None) or 1)
    brief = Duration(300)
    small = replace(job, shape=replace(job.shape, nodes=nodes), walltime=brief, stop_ahead=Duration(60), requeue=0)
    lines = head(small, site, name=f"{study}-after", root=root, log="after/relay.log")
    return "\n".join(["#!/bin/bash", *lines, "exit 0 # the jobs that this job waited for are over", ""])


def _get_resources(job: Job) -> tuple[object, ...]:
    return job.shape, job.walltime, job.queue, job.account, job.requeue > 0, job.stop_ahead


def _set_variables(job: Job, run: str, site: Site) -> tuple[list[str], list[str]]:
    """Return the arguments to insert before and after a run's launch command to set the run's own variables.

    These variables are set with `env`. Shell assignments could clash with the script's variables and would affect all
    commands.
    """
    variables = job.environments.get(run, {})
    if variables and "=" in job.launch[0]:
        raise ValueError(
            f"{job.launch[0]}: `env` would read this name as a variable: link the program under a name without ="
        )
    before = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    return before, export_words(variables, site)


def _driver_options(job: Job, site: Site, host_file: str | None) -> list[str]:
    """Return the options of `hpcbench.job` for a job."""
    options = []
    if job.walltime is not None:
        options += ["--walltime", str(job.walltime.seconds)]
    options += ["--stop-ahead", str(job.stop_ahead.seconds)]
    if job.run_limit is not None:
        options += ["--run-limit", str(job.run_limit.seconds)]
    if job.requeue:
        options += ["--requeue", str(job.requeue)]
    if site.scheduler.kind == "lsf" and site.scheduler.allocation == "nodes":
        options.append("--easy")
    if host_file is not None:
        options += ["--host-file", host_file, str(1 if job.once_a_node else job.shape.ranks_per_node)]
    if job.container is None:
        options.append(f"--doctor={job.python}")
    return options


def _script(template: str, site: Site, directives: list[str], **values: Any) -> str:
    templates = Path(site.templates) if site.templates else None
    try:
        environment = template_environment(templates)
        text = environment.get_template(template).render(
            version=__version__, directives=directives, site=site, **values
        )
    except (ValueError, UserError):
        raise
    except Exception as error:  # a site's template can raise anything, such as ZeroDivisionError
        if templates is None:
            raise
        raise UserError(f"{_where(error, templates)}: {type(error).__name__}: {error}: correct the template") from None
    lacking = [line for line in directives if line not in text.splitlines()]
    if lacking:
        raise ValueError(
            f"{template}: the line {lacking[0]!r} is missing: write out every entry of `directives`; if the site "
            "refuses an option, add the option to scheduler.refuses"
        )
    if smuggles(text, directives):
        raise ValueError(f"{template}: the scheduler would read a value as a directive: change the value")
    return text


def _where(error: Exception, templates: Path) -> str:
    """Return the file and line of the user's template where an error occurred, if known."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    places.append((getattr(error, "filename", None) or "", getattr(error, "lineno", None)))
    own_places = [f"{shown_path(Path(name))}:{line}" for name, line in places if Path(name).is_relative_to(templates)]
    return own_places[-1] if own_places else shown_path(templates)


@cache
def template_environment(templates: Path | None = None) -> "Environment":
    """Return a Jinja environment that loads the site's templates first, then hpcbench's templates.

    Raises
    ------
    UserError
        A template in `templates` contains lines that would be ignored.
    """
    import jinja2

    ours = jinja2.FileSystemLoader(data_dir("templates"))
    loaders: list[jinja2.BaseLoader] = [ours, jinja2.PrefixLoader({"hpcbench": ours})]
    if templates is not None:
        loaders.insert(0, jinja2.FileSystemLoader(templates, encoding="utf-8-sig"))  # some editors write a BOM
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["q"] = quote_words
    if templates is not None:
        check_overrides(templates, environment)
    return environment
