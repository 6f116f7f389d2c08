"""Detection of conflicts between a site's directives and hpcbench's own directives."""

import re

from hpcbench.batch.sites.site import Site

_OURS = {
    "slurm": "-J --job-name -N --nodes -n --ntasks --ntasks-per-node -c --cpus-per-task -t --time -D --chdir "
    "-o --output -e --error --open-mode --requeue --no-requeue --signal -a --array -d --dependency --export",
    "lsf": "-J -nnodes -W -cwd -o -oo -e -eo -w -r -rn -wa -wt -K -I",
    "flux": "-N --nodes -t --time-limit --job-name --output --exclusive -x --dependency --cwd --urgency",
    "local": "",
}
_QUEUE = {"slurm": "-p --partition", "lsf": "-q", "flux": "-q --queue", "local": ""}
_GPUS = ("--gres", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "-gpu")
_SLOTS = ("-n", "-c", "-g", "--nslots", "--cores-per-slot", "--gpus-per-slot")


def clash(site: Site, option: str, value: object = None) -> str | None:
    """Return why a site's directive conflicts with hpcbench's, and the remedy. Return None if they agree.

    Parameters
    ----------
    option, value
        Entry of ``scheduler.directives``.
    """
    scheduler = site.scheduler
    kind, by_nodes = scheduler.kind, scheduler.allocation == "nodes"
    queue = [scheduler.queue_option] if scheduler.queue_option else _QUEUE[kind].split()
    ours = {*_OURS[kind].split(), *queue, scheduler.account_option}
    if scheduler.gpu_request != "none":
        ours |= {name for name in _GPUS if (kind, name) != ("lsf", "-G")}
    if option in ours:
        return "is set by hpcbench: remove it"
    if option in scheduler.refuses:
        return "is also in scheduler.refuses: remove it from one of the two fields"
    if kind == "flux" and option in _SLOTS:
        return "requests slots, but jobs get whole nodes: remove it"
    if kind != "lsf":
        return None
    if by_nodes and option in ("-n", "-R", "-csm"):
        return "cannot be combined with -nnodes, which hpcbench sets: remove it, or write allocation: slots"
    if not by_nodes and option == "-n":
        return "is set by hpcbench: remove it"
    if not by_nodes and option in ("-alloc_flags", "-core_isolation"):
        return "needs -nnodes: remove it, or write allocation: nodes"
    if option == "-R" and "span[" in str(value):
        return "span[] is set by hpcbench: remove it"
    if option == "-R" and re.search(r"[{}]|\|\|.*\[", str(value)):
        return "cannot be combined with span[], which hpcbench sets: write one requirement without braces"
    return None
