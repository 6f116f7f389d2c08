"""Job script directives of each scheduler."""

import re
from collections.abc import Callable, Sequence

from hpcbench.batch.scripts.clash import clash
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.quoting import quote
from hpcbench.batch.scripts.refused import check_needed, left_out
from hpcbench.batch.sites.site import Site

Options = list[tuple[str, object]]

_DIRECTIVE = re.compile(r"^\s*(?:#BSUB|#SBATCH|[^A-Za-z0-9\n]+(?:flux|FLUX):)", re.MULTILINE)
"""Pattern of text that a scheduler reads as a directive. Flux accepts any comment character before its keyword."""
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._+=@:,~-]*")
"""Pattern of paths that need no quoting.

Schedulers expand or truncate other paths, and quoting rules differ by version.
"""
_CWD = {"#SBATCH": "--chdir", "#BSUB": "-cwd", "#flux:": "--cwd"}
_LOG = {"#SBATCH": "--output", "#BSUB": "-o", "#flux:": "--output"}


def head(job: Job, site: Site, *, name: str, root: str, log: str, array: str | None = None) -> list[str]:
    """Return the directives of a job script, one per line.

    Parameters
    ----------
    name
        Name in the queue.
    root
        Absolute path of the submission's directory.
    log
        Path of the output file, relative to `root`.
    array
        Array indices in the scheduler's format, or None for a single job.

    Raises
    ------
    ValueError
        The site's directives conflict with hpcbench's, or the scheduler does not accept a value.
    """
    if site.scheduler.kind == "local":
        return []
    if not _PLAIN_PATH.fullmatch(root):
        raise ValueError(
            f"{root!r}: a scheduler accepts only letters, digits and / . _ + = @ : , ~ - in this path: choose another "
            "path with --out"
        )
    sentinel, write = _HEADS[site.scheduler.kind]
    options = write(job, site, name, array)
    options += [(_CWD[sentinel], root), (_LOG[sentinel], f"{root}/{log}")]
    refused = left_out(site)
    options = [(option, value) for option, value in options if option not in refused]
    check_needed(site, {option for option, _ in options})
    for option, value in site.scheduler.directives.items():
        set_options = [name for name, _ in options if (name, option) != ("-R", "-R")]
        why = "is set by hpcbench: remove it" if option in set_options else clash(site, option, value)
        if why is not None:
            raise ValueError(f"scheduler.directives: {option} {why}")
    return [directive(sentinel, *option) for option in _joined(options, site)]


def _joined(options: Options, site: Site) -> Options:
    """Join the options of hpcbench and the site. Some LSF variants accept only one -R, with the selection first."""
    more = dict(site.scheduler.directives)
    options = [
        (name, f"{more.pop(name)} {value}" if name == "-R" and more.get(name) else value) for name, value in options
    ]
    return [*options, *more.items()]


def directive(sentinel: str, option: str, value: object = None) -> str:
    """Format one directive.

    Parameters
    ----------
    sentinel
        ``#BSUB``, ``#SBATCH`` or ``#flux:``.
    option, value
        Option and value, or None for an option without a value.
    """
    if value is None:
        return f"{sentinel} {option}"
    return f"{sentinel} {option}{'=' if option.startswith('--') else ' '}{quote(value)}"


def smuggles(script: str, directives: Sequence[str]) -> bool:
    """Return whether a script contains scheduler directives that are not in this list."""
    # Counting is fast. Search for the pattern only if the count differs.
    count = sum(script.count(mark) for mark in ("#BSUB", "#SBATCH", "flux:", "FLUX:"))
    return count != len(directives) and len(_DIRECTIVE.findall(script)) != len(directives)


def _slurm(job: Job, site: Site, name: str, array: str | None) -> Options:
    """Return the options of sbatch.

    The options include all counts, because Slurm versions derive missing counts differently.
    """
    shape = job.shape
    options: Options = [
        ("--job-name", name),
        ("--nodes", shape.nodes),
        ("--ntasks", shape.ranks),
        ("--ntasks-per-node", shape.ranks_per_node),
    ]
    if site.launcher.kind != "ibrun":
        options.append(("--cpus-per-task", shape.cores_per_rank * site.node.threads_per_core))
    if array is not None:
        options.append(("--array", array))
    options += _gpus(job, site)
    if job.walltime is not None:
        options += [("--time", job.walltime.slurm()), ("--signal", f"B:USR1@{job.stop_ahead.seconds}")]
        if job.stop_ahead.seconds > 65535:
            raise ValueError(
                f"stop_ahead: {job.stop_ahead} is longer than Slurm's --signal allows (18h12m15s): shorten it"
            )
    options += _charged(job, site, "--partition", "--account")
    if job.notify is not None:
        options += [("--mail-user", job.notify), ("--mail-type", "END,FAIL")]
    return [*options, ("--open-mode", "append"), ("--requeue" if job.requeue else "--no-requeue", None)]


def _lsf(job: Job, site: Site, name: str, array: str | None) -> Options:
    """Return the options of bsub: whole nodes with -nnodes (easy mode of Sierra-class machines), or slots.

    A slot is a core. LSF may bind a job to its slots, so one slot per rank would leave no cores for threads.
    """
    shape = job.shape
    options: Options = [("-J", name + (array or ""))]
    if site.scheduler.allocation == "nodes":
        options.append(("-nnodes", shape.nodes))
    else:
        slots = min(shape.ranks_per_node * shape.cores_per_rank, site.node.usable_cores)  # ranks can share cores
        options += [("-n", shape.nodes * slots), ("-R", f"span[ptile={slots}]")]
    options += _gpus(job, site)
    if job.walltime is not None:
        ahead = -(-job.stop_ahead.seconds // 60)
        options += [("-W", job.walltime.lsf()), ("-wt", ahead), ("-wa", "URG")]
    options += _charged(job, site, "-q", "-P")
    if job.notify is not None:
        options += [("-u", job.notify), ("-N", None)]
    return [*options, ("-r" if job.requeue else "-rn", None)]


def _flux(job: Job, site: Site, name: str, array: str | None) -> Options:
    """Return the options of `flux batch` for whole nodes. The number of ranks is given only in the launch command."""
    if array is not None:
        raise ValueError("flux has no job arrays")
    options: Options = [("--job-name", name), ("--nodes", job.shape.nodes), ("--exclusive", None), *_gpus(job, site)]
    if job.walltime is not None:
        options.append(("--time-limit", job.walltime.flux()))
    return options + _charged(job, site, "--queue", "--bank")


_HEADS: dict[str, tuple[str, Callable[[Job, Site, str, str | None], Options]]] = {
    "slurm": ("#SBATCH", _slurm),
    "lsf": ("#BSUB", _lsf),
    "flux": ("#flux:", _flux),
}


def _gpus(job: Job, site: Site) -> Options:
    """Return the GPU request option. The result is empty if the job needs no GPUs or the site needs no request."""
    how, kind, shape = site.scheduler.gpu_request, site.scheduler.kind, job.shape
    if how == "none" or not shape.gpus_per_rank:
        return []
    forms = {"slurm": ("gres", "gpus-per-node", "gpus-per-task"), "lsf": ("gpu",)}.get(kind, ())
    if how not in forms:
        raise ValueError(f"scheduler.gpu_request: {kind} has no {how}: use {' or '.join((*forms, 'none'))}")
    if how == "gpus-per-task":
        if shape.gpus_per_rank.denominator != 1:
            raise ValueError(
                f"scheduler.gpu_request: gpus-per-task requests whole GPUs, but a rank has {shape.gpus_per_rank}"
            )
        return [("--gpus-per-task", shape.gpus_per_rank)]
    shared = site.visibility != "one"
    number = site.node.gpus if shared else -(-shape.ranks_per_node * shape.gpus_per_rank // 1)
    return [
        {"gres": ("--gres", f"gpu:{number}"), "gpu": ("-gpu", f"num={number}:j_exclusive=yes")}.get(
            how, (f"--{how}", number)
        )
    ]


def _charged(job: Job, site: Site, queue_option: str, account_option: str) -> Options:
    options: Options = []
    if job.queue is not None:
        options.append((site.scheduler.queue_option or queue_option, job.queue))
    if job.account is not None:
        options.append((site.scheduler.account_option or account_option, job.account))
    return options
