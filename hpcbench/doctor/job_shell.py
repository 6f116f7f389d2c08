"""Commands in the environment of a job: with the modules, setup lines and variables of the site."""

import shlex

from hpcbench.batch.schedulers.attempt import CommandOutcome
from hpcbench.batch.schedulers.clean_environment import clean_environment
from hpcbench.batch.schedulers.local import environment
from hpcbench.batch.sites.site import Site

NO_MODULE = 97
"""Exit status if a module of the site file cannot be loaded."""
MODULE_REMEDY = "correct `modules` of the site file; if shells lack `module`, define and use it in `setup` instead"


def in_job(site: Site, argv: list[str]) -> list[str]:
    """Wrap a command with the modules, setup lines, and variables of the job script."""
    if not (site.modules or site.setup or site.environment):
        return argv
    lines = [f"module load {shlex.quote(module)} >&2 || exit {NO_MODULE}" for module in site.modules]
    lines += [*site.setup, *(f"export {name}={shlex.quote(value)}" for name, value in site.environment.items())]
    shell = ["bash", "-lc" if site.modules else "-c"]  # a login shell defines `module` and may reset PATH
    return [*shell, "\n".join([*lines, 'exec "$@"']), "hpcbench", *argv]


def job_environment() -> dict[str, str]:
    """Return the environment of this process without the variables of an enclosing job or launcher."""
    return clean_environment(environment(), keep=("FLUX_URI",))


def explain_failure(answer: CommandOutcome) -> str:
    """Return the reason why a command failed. If a module cannot be loaded, this is the message about the module."""
    lines = answer.err.splitlines() if answer.status == NO_MODULE else []
    return next((" ".join(line.split()) for line in lines if "module" in line.lower()), answer.problem)
