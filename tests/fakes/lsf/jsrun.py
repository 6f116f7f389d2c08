"""The fake jsrun, which checks resource sets against the fake node and starts real ranks.

Sources: IBM Job Step Manager, jsrun; OLCF's user guide of Summit. -n is the number of resource sets, -a the number of
ranks per set.
"""

import os
import re

from fakes.lsf.words import VERSION
from fakes.programs import Call, RefusedError, register_program
from fakes.ranks import Names, Rank, find_allocation, launch
from fakes.state import Config, Job

_VALUED = {
    "-n": "--nrs",
    "-r": "--rs_per_host",
    "-K": "--rs_per_socket",
    "-a": "--tasks_per_rs",
    "-p": "--np",
    "-c": "--cpu_per_rs",
    "-g": "--gpu_per_rs",
    "-m": "--memory_per_rs",
    "-b": "--bind",
    "-d": "--launch_distribution",
    "-l": "--latency_priority",
    "-E": "--env",
    "-M": "--smpiargs",
    "-h": "--chdir",
    "-X": "--exit_on_error",
    "-e": "--stdio_mode",
}
_FLAGS = {"-i": "--immediate"}
_REFUSED = "Error: Not enough resources available to schedule job."
_OUTSIDE = "Error: It is only possible to use js commands within a job allocation unless CSM is running"
NAMES = Names(
    ("JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
    ("JSM_NAMESPACE_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("JSM_NAMESPACE_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)


@register_program("jsrun")
def jsrun(call: Call) -> int:
    """Start ranks in resource sets."""
    if "-V" in call.argv[:1] or "--version" in call.argv[:1]:
        print(f"jsrun: {VERSION}")
        return 0
    options, command = _read(call.argv)
    job = find_allocation(call.store, os.environ.get("LSB_JOBID"), _OUTSIDE)
    ranks = _place_ranks(options, job, call.store.config)
    pairs = [text.partition("=") for text in options.get("--env", [])]
    variables = {name: value for name, equal, value in pairs if equal}
    if "--chdir" in options:
        os.chdir(options["--chdir"][-1])
    return launch(call.store, ranks, command, variables, NAMES)


def _read(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    options: dict[str, list[str]] = {}
    remaining = list(argv)
    while remaining and remaining[0].startswith("-"):
        word = remaining.pop(0)
        if word == "--":
            break
        if word in _FLAGS or word in _FLAGS.values():
            continue
        name, equal, value = word.partition("=")
        if not word.startswith("--"):
            name, value = _VALUED.get(word[:2], ""), word[2:].removeprefix("=")
        elif name not in _VALUED.values():
            name = ""
        if not name:
            raise RefusedError(f"jsrun: unrecognized option '{word}'\nTry `jsrun --help' for more information.", 1)
        if not value and not equal:
            if not remaining:
                raise RefusedError(f"jsrun: option requires an argument -- '{word}'", 1)
            value = remaining.pop(0)
        options.setdefault(name, []).append(value)
    return options, remaining


def _place_ranks(options: dict[str, list[str]], job: Job, config: Config) -> list[Rank]:
    hosts = list(job.places)
    per_host = _count(options, "--rs_per_host", 0)
    cores = _count(options, "--cpu_per_rs", 1, ALL_CPUS=config.cores)
    gpus = _count(options, "--gpu_per_rs", 0, ALL_GPUS=config.gpus)
    fit = min(config.cores // max(1, cores), config.gpus // gpus if gpus else config.cores)
    _check_fit(fit >= 1, f"a resource set of {cores} cores and {gpus} GPUs is larger than the node", config)
    _check_fit(
        per_host <= fit,
        f"{per_host} sets a host of {cores} cores and {gpus} GPUs need {per_host * cores} and {per_host * gpus}",
        config,
    )
    per_host = per_host or fit
    sets = _count(options, "--nrs", per_host * len(hosts), ALL_HOSTS=per_host * len(hosts))
    most = per_host * len(hosts)
    _check_fit(sets <= most, f"{sets} resource sets, {per_host} a host, do not fit on {len(hosts)} hosts", config)
    if "--np" in options and "--tasks_per_rs" in options:
        raise RefusedError("Error: -p/--np cannot be used with -a/--tasks_per_rs", 1)
    each = _count(options, "--tasks_per_rs", 1)
    total = _count(options, "--np", sets * each)
    each = -(-total // sets)
    _check_binding(options, each, cores, config)
    counts = [min(each, total - k * each) for k in range(sets)]
    on_host = [sum(counts[h * per_host : (h + 1) * per_host]) for h in range(len(hosts))]
    ranks: list[Rank] = []
    for k, count in enumerate(counts):
        host, place = divmod(k, per_host)
        before = sum(counts[host * per_host : k])
        seen = list(range(place * gpus, (place + 1) * gpus))
        ranks += [Rank(hosts[host], before + task, on_host[host], seen) for task in range(max(0, count))]
    return ranks


def _check_binding(options: dict[str, list[str]], ranks: int, cores: int, config: Config) -> None:
    for binding in options.get("--bind", []):
        match = re.fullmatch(r"(?:(?:proportional-)?packed(?::(\w+:)?(\d+))?|rs|none)", binding)
        if not match:
            raise RefusedError(f"Error: Invalid value for bind option: {binding}", 1)
        wanted = int(match[2] or 1) * ranks if binding.startswith("packed") else 0
        _check_fit(
            wanted <= cores, f"{ranks} ranks of a set bound by {binding} need {wanted} cores of its {cores}", config
        )
    for place in options.get("--launch_distribution", []):
        if not re.fullmatch(r"packed|cyclic|plane:\d+", place):
            raise RefusedError(f"Error: Invalid value for launch_distribution option: {place}", 1)


def _count(options: dict[str, list[str]], name: str, otherwise: int, **number_words: int) -> int:
    text = options.get(name, [""])[-1]
    if text in number_words:
        return number_words[text]
    if text and not text.isdigit():
        raise RefusedError(f"Error: Invalid value for {name}: {text}", 1)
    return int(text) if text else otherwise


def _check_fit(good: bool, why: str, config: Config) -> None:
    if not good:
        raise RefusedError(
            f"{_REFUSED}\nhpcbench's fake: {why}; a node has {config.cores} cores and {config.gpus} GPUs", 1
        )
