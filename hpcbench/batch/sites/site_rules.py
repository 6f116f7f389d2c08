"""Rules for value combinations in a site file, with one function per rule."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from hpcbench.batch.scripts.clash import clash
from hpcbench.batch.scripts.containers import check
from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.site import SHOWS_ALL, Site
from hpcbench.contract.problems import FieldPath, format_fault, show
from hpcbench.study.yaml12 import YamlDocument


@dataclass(frozen=True)
class Fault:
    """A fault in a site file."""

    path: FieldPath
    """Path of the value to change."""
    problem: str
    """Problem and remedy."""

    def line(self, document: YamlDocument) -> str:
        """Format the fault as one line with its location in the file."""
        return format_fault(document.where(self.path), self.path, self.problem)


Rule = Callable[[Site], Iterator[Fault]]
_RULES: list[tuple[tuple[FieldPath, ...], Rule]] = []


def rule(*needs: str) -> Callable[[Rule], Rule]:
    """Register a rule.

    Parameters
    ----------
    needs
        Dotted paths of the values that the rule reads. If any of these values is invalid, the rule is skipped.
    """

    def register(function: Rule) -> Rule:
        _RULES.append((tuple(tuple(path.split(".")) for path in needs), function))
        return function

    return register


def faults(site: Site, broken: Collection[FieldPath] = ()) -> list[Fault]:
    """Return the faults found by all rules. Faults that explain other faults come first.

    Parameters
    ----------
    broken
        Paths of invalid values. In the site, these values are missing or have been replaced by substitutes.
    """
    problems: list[Fault] = []
    for needs, ask in _RULES:
        if not any(_overlap(path, need) for path in broken for need in needs):
            problems += [fault for fault in ask(site) if not any(_in_one_list(fault.path, path) for path in broken)]
    if not any(path[0] in _ABOUT_NODES for path in (*broken, *(fault.path for fault in problems))):
        problems += _usual_ranks_fit(site)
    return problems


_ABOUT_NODES = ("node", "launcher", "device", "python", "threads", "ranks_per_node", "scheduler", "oversubscribe")


def _overlap(path: FieldPath, need: FieldPath) -> bool:
    length = min(len(path), len(need))
    return path[:length] == need[:length]


def _in_one_list(path: FieldPath, broken: FieldPath) -> bool:
    """Return whether both paths refer to items of the same list. Removing one item may change the other's index."""
    common = next(
        (i for i, (a, b) in enumerate(zip(path, broken, strict=False)) if a != b), min(len(path), len(broken))
    )
    return any(isinstance(part, int) for part in (*path[common : common + 1], *path[:common]))


_SCHEDULER_OF = {"srun": "slurm", "ibrun": "slurm", "jsrun": "lsf", "lrun": "lsf", "flux": "flux"}


@rule("scheduler.kind", "launcher.kind")
def _launcher_goes_with_scheduler(site: Site) -> Iterator[Fault]:
    kind = site.launcher.kind
    wanted = _SCHEDULER_OF.get(kind)
    if wanted and wanted != site.scheduler.kind:
        free = "mpich, openmpi, mvapich or mpirun_rsh"
        usual = [name for name, of in _SCHEDULER_OF.items() if of == site.scheduler.kind]
        yield Fault(
            ("launcher", "kind"),
            f"{kind} starts ranks in jobs of {wanted}, not of {site.scheduler.kind}: use {', '.join([*usual, free])}",
        )


@rule("scheduler.kind", "launcher.kind", "launcher.visibility", "device")
def _launcher_can_show_so_many_gpus(site: Site) -> Iterator[Fault]:
    kind, visibility = site.launcher.kind, site.launcher.visibility
    if site.device == "cpu" or visibility is None:
        return
    if kind in SHOWS_ALL and visibility != "all":
        yield Fault(("launcher", "visibility"), f"{kind} always shows a rank all GPUs of its node: write all")
    elif kind in ("srun", "lrun", "flux") and visibility == "socket":
        yield Fault(("launcher", "visibility"), f"{kind} shows a rank only its own GPUs or all GPUs: write one or all")


@rule("launcher.kind")
def _mpi_is_for_job_step_managers(site: Site) -> Iterator[Fault]:
    if site.launcher.mpi is not None and site.launcher.kind not in ("jsrun", "lrun"):
        yield Fault(
            ("launcher", "mpi"), "applies only to jsrun and lrun, which support several MPI libraries: remove it"
        )


@rule("launcher.kind", "device", "container")
def _containers_can_be_run(site: Site) -> Iterator[Fault]:
    """Check the container fields of the site. The study may set the image."""
    if site.container is None or site.container.kind is None:
        return
    try:
        check(site.container.changed(image=site.container.image or "any"), site)
    except ValueError as error:
        yield Fault(("container",), str(error))


@rule("device", "node.gpus")
def _device_is_there(site: Site) -> Iterator[Fault]:
    if site.device == "cuda" and not site.node.gpus:
        yield Fault(("device",), "cuda needs node.gpus, the number of GPUs of a node: add it, or write cpu")


@rule("device", "transport")
def _nccl_has_gpus(site: Site) -> Iterator[Fault]:
    if site.transport == "nccl" and site.device != "cuda":
        yield Fault(
            ("transport",), "nccl sends only arrays on GPUs, but device is not cuda: write mpi, or change device"
        )


@rule("scheduler.kind", "python", "node.cores", "launcher.kind")
def _auto_means_here(site: Site) -> Iterator[Fault]:
    if site.scheduler.kind == "local":
        return
    if site.python == "auto":
        yield Fault(
            ("python",), "auto refers to the machine that runs hpcbench: give the interpreter of the compute nodes"
        )
    if site.launcher.kind == "auto":
        yield Fault(
            ("launcher", "kind"),
            "auto refers to the machine that runs hpcbench: give the launcher of the compute nodes",
        )
    if site.node.cores == "auto":
        yield Fault(
            ("node", "cores"),
            "auto refers to the machine that runs hpcbench: give the cores of a compute node that jobs may use",
        )


@rule("node.gpus", "node.sockets", "node.socket_gpus")
def _gpus_lie_on_sockets(site: Site) -> Iterator[Fault]:
    node = site.node
    if node.socket_gpus is None:
        each, remainder = divmod(node.gpus, node.sockets)
        if remainder:
            example = [each] * (node.sockets - 1) + [each + remainder]
            yield Fault(
                ("node", "gpus"),
                f"{node.gpus} GPUs cannot be divided equally among {node.sockets} sockets: add socket_gpus, such as "
                f"{example}",
            )
    elif len(node.socket_gpus) != node.sockets or sum(node.socket_gpus) != node.gpus:
        yield Fault(
            ("node", "socket_gpus"),
            f"{node.socket_gpus} must list one number for each of {node.sockets} sockets, {node.gpus} GPUs in all",
        )


@rule("node.cores", "node.sockets")
def _sockets_have_cores(site: Site) -> Iterator[Fault]:
    node = site.node
    if node.cores != "auto" and node.cores < node.sockets:
        yield Fault(("node", "cores"), f"{node.cores} is less than node.sockets, {node.sockets}: change one of the two")


def _usual_ranks_fit(site: Site) -> Iterator[Fault]:
    usual = site.capacity.ranks_per_node
    if usual is None:
        return
    try:
        solve(site, nodes=1, ranks_per_node=usual)
    except ValueError as error:
        names = [name for name in ("ranks_per_node", "threads") if getattr(site, name) is not None]
        yield Fault((names[0] if names else "node",), f"the default ranks per node do not fit on a node: {error}")


@rule()
def _limits_agree(site: Site) -> Iterator[Fault]:
    for name, queue in site.queues.items():
        path: FieldPath = ("queues", name)
        if queue.min_nodes and queue.max_nodes and queue.min_nodes > queue.max_nodes:
            yield Fault(
                (*path, "min_nodes"), f"{queue.min_nodes} is above max_nodes, {queue.max_nodes}: change one of them"
            )
        before = 0
        for number, bin_ in enumerate(queue.bins):
            if bin_.max_nodes <= before:
                yield Fault(
                    (*path, "bins", number, "max_nodes"),
                    f"{bin_.max_nodes} is not above {before}, from the previous bin: list the smallest bin first",
                )
            before = max(before, bin_.max_nodes)
        if queue.bins and queue.max_nodes and queue.max_nodes > before:
            yield Fault(
                (*path, "max_nodes"),
                f"{queue.max_nodes} is above max_nodes of the last bin, {before}: change one of them",
            )
        if queue.max_walltime:
            longest = Duration.parse(queue.max_walltime)
            for number, bin_ in enumerate(queue.bins):
                if Duration.parse(bin_.max_walltime) > longest:
                    yield Fault(
                        (*path, "bins", number, "max_walltime"),
                        f"{bin_.max_walltime} exceeds the queue's max_walltime, {longest}: change one of them",
                    )


@rule()
def _usual_walltime_is_allowed(site: Site) -> Iterator[Fault]:
    name, queue = next(iter(site.queues.items()), (None, None))
    if site.walltime is None or queue is None:
        return
    limits = [text for text in (queue.max_walltime, *(b.max_walltime for b in queue.bins)) if text]
    if limits and Duration.parse(site.walltime) > max(map(Duration.parse, limits)):
        longest = max(map(Duration.parse, limits))
        yield Fault(
            ("walltime",), f"{site.walltime} is longer than the first queue, {name}, allows ({longest}): shorten it"
        )


@rule("scheduler.kind", "scheduler.gpu_request")
def _options_are_for_the_scheduler(site: Site) -> Iterator[Fault]:
    scheduler, fields = site.scheduler, site.scheduler.model_fields_set
    if scheduler.kind != "lsf":
        for name in sorted(fields & {"allocation", "hand_in"}):
            yield Fault(("scheduler", name), "is for LSF only: remove it")
    if scheduler.kind == "local":
        given = fields & {"account_option", "queue_option", "directives", "max_array", "max_submitted", "refuses"}
        for name in sorted(given):
            yield Fault(("scheduler", name), "has no effect without a scheduler: remove it")
    ways = {"slurm": ("none", "gres", "gpus-per-node", "gpus-per-task"), "lsf": ("none", "gpu")}
    allowed = ways.get(scheduler.kind, ("none",))
    if scheduler.gpu_request not in allowed:
        yield Fault(
            ("scheduler", "gpu_request"),
            f"{scheduler.gpu_request} is not supported with {scheduler.kind}: use {' or '.join(allowed)}",
        )


@rule("scheduler.kind", "scheduler.account_option", "scheduler.queue_option", "scheduler.allocation")
def _directives_do_not_clash(site: Site) -> Iterator[Fault]:
    for option, value in site.scheduler.directives.items():
        why = clash(site, option, value)
        if why is not None:
            yield Fault(("scheduler", "directives", option), why)


@rule()
def _nothing_refused_is_used(site: Site) -> Iterator[Fault]:
    refused = site.scheduler.refuses
    if f"--{site.scheduler.gpu_request}" in refused:
        yield Fault(("scheduler", "gpu_request"), f"--{site.scheduler.gpu_request} is in scheduler.refuses: use none")
    for number, word in enumerate(site.launcher.args):
        if word.partition("=")[0] in refused:
            yield Fault(("launcher", "args", number), f"{show(word)} is in scheduler.refuses: remove it")


@rule()
def _lines_are_no_directives(site: Site) -> Iterator[Fault]:
    for name in ("setup", "teardown"):
        for number, line in enumerate(getattr(site, name)):
            if re.match(r"\s*#(BSUB|SBATCH|flux:)", line):
                yield Fault((name, number), "is a directive of the scheduler: move it to scheduler.directives")


@rule()
def _variables_are_not_ours(site: Site) -> Iterator[Fault]:
    whose = {"OMP_NUM_THREADS": "follows from threads", "CUDA_VISIBLE_DEVICES": "follows from launcher.visibility"}
    for name in site.environment:
        if name in whose or name.startswith("HPCBENCH_"):
            yield Fault(("environment", name), f"{whose.get(name, 'is set by hpcbench')}: remove it")
