"""The fake lrun, LLNL's front end for jsrun, which divides a node's cores and GPUs evenly.

Sources: LLNL's page on lrun, which documents -N2 and -T4. In public scripts, the number is sometimes a separate
argument.
"""

import os
import re

from fakes.lsf.jsrun import NAMES
from fakes.lsf.words import VERSION
from fakes.programs import Call, RefusedError, register_program
from fakes.ranks import Rank, find_allocation, launch, split
from fakes.state import Config, Job

_NUMBERS = ("-N", "-T", "-n", "-p", "-c", "-g", "-W", "-t")
_WORDS = ("-M", "--smpiargs", "-E", "--env")
_CHOICES = {"--gpubind": ("on", "off"), "--mpibind": ("on", "off"), "--bind": ("on", "off")}
_FLAGS = ("--nolbind", "--pack", "-v", "--adv_map", "-1")


@register_program("lrun")
def lrun(call: Call) -> int:
    """Start ranks on the job's nodes."""
    if call.argv[:1] in (["-V"], ["--version"]):
        print(f"lrun: {VERSION}")
        return 0
    options, command = _read(call.argv)
    outside = "lrun: must be run inside of an LSF allocation"
    job = find_allocation(call.store, os.environ.get("LSB_JOBID"), outside)
    pairs = [text.partition("=") for name in ("-E", "--env") for text in options.get(name, [])]
    variables = {name: value for name, _, value in pairs}
    return launch(call.store, _place_ranks(options, job, call.store.config), command, variables, NAMES)


def _read(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    options: dict[str, list[str]] = {}
    remaining = list(argv)
    while remaining and remaining[0].startswith("-"):
        word = remaining.pop(0)
        name, equal, value = word.partition("=")
        if name in _CHOICES and equal and value in _CHOICES[name]:
            options.setdefault(name, []).append(value)
        elif word in _FLAGS:
            options.setdefault(word, []).append("")
        elif name in _WORDS and (equal or remaining):
            options.setdefault(name, []).append(value if equal else remaining.pop(0))
        elif word[:2] in _NUMBERS:
            number = word[2:] or (remaining.pop(0) if remaining else "")
            if not re.fullmatch(r"\d+", number):
                raise RefusedError(f"lrun: invalid number after {word[:2]}: '{number}'", 1)
            options.setdefault(word[:2], []).append(number)
        else:
            raise RefusedError(f"lrun: unknown option '{word}'", 1)
    return options, remaining


def _place_ranks(options: dict[str, list[str]], job: Job, config: Config) -> list[Rank]:
    hosts = list(job.places)
    if "-1" in options:
        return [Rank(hosts[0], 0, 1, list(range(config.gpus)))]
    nodes = int(options.get("-N", [str(len(hosts))])[-1])
    if nodes > len(hosts):
        raise RefusedError(f"lrun: -N{nodes}: the allocation has {len(hosts)} nodes", 1)
    total = next((int(options[name][-1]) for name in ("-n", "-p") if name in options), 0)
    per_node = int(options.get("-T", [str(-(-total // nodes) if total else 1)])[-1])
    if per_node < 1 or per_node > config.cores:
        raise RefusedError(f"lrun: -T{per_node}: a node has {config.cores} cores", 1)
    total = total or nodes * per_node
    if total > nodes * per_node:
        raise RefusedError(f"lrun: {total} tasks do not fit on {nodes} nodes of {per_node}", 1)
    ranks: list[Rank] = []
    for k in range(total):
        host, local = divmod(k, per_node)
        size = min(per_node, total - host * per_node)
        bound = options.get("--gpubind", ["on"])[-1] == "on"
        ranks.append(Rank(hosts[host], local, size, split(config, size, local) if bound else range(config.gpus)))
    return ranks
