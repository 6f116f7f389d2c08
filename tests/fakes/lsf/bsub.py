"""The fake bsub, which checks its arguments against IBM's documentation, prints LSF's messages, and queues jobs.

Sources: IBM Spectrum LSF 10.1, Command Reference, bsub and bsub -csm; messages of LSF and its open-source derivatives.
"""

import json
import os
import re
import time
from pathlib import Path

from fakes.lsf.depend import evaluate
from fakes.lsf.flavours import FLAVOURS
from fakes.lsf.names import parse_array
from fakes.lsf.options import CSM_ONLY, NOT_FAKED, Options, merge_options, parse, read_script_options
from fakes.lsf.words import VERSION
from fakes.programs import Call, RefusedError, register_program
from fakes.signals import signal_number
from fakes.state import HELD, WAITING, Config, Job, State

_EASY_MODE = "You cannot specify R/M/-n/LSB_DEFAULT_RESREQ when CSM Easy Mode job submission is enabled."
_NO_SLOTS = """#######################################################
###      1 ERROR(S) FOUND.  JOB NOT SUBMITTED.       ###

30: The '-n <slots>' flag is no longer supported.  Please use '-nnodes <node_count>' to request nodes.
Please address the given error(s) and resubmit.
#######################################################"""
_SECTIONS = ("select", "order", "rusage", "span", "same", "cu", "affinity")


@register_program("bsub")
def bsub(call: Call) -> int:
    """Queue a job or a job array."""
    config = call.store.config
    given, command = parse(call.argv)
    if "-V" in given:
        call.warn(VERSION)
        return 0
    script, options = _read_script(call, given, command)
    if "-o" in options and "-oo" in options:
        options.pop("-o")
    _check(options, config, call)
    with call.store.change() as state:
        jobs = _make_jobs(options, config, state)
        number = state.next
        state.next += 1
        path = call.store.locate_file(f"{number}.sh")
        path.write_bytes(script)
        variables = call.store.locate_file(f"{number}.env.json")
        variables.write_text(json.dumps(_resolve_environment(options)), encoding="ascii")
        for job in jobs:
            job.id, job.script = number, str(path)
            job.output, job.error = _expand_path(job, job.output), _expand_path(job, job.error)
            job.say(job.submitted, f"Submitted from host <login1>, to Queue <{job.queue}>, CWD <{job.cwd}>;")
        state.jobs += jobs
    default = "" if "-q" in options else "default "
    print(f"Job <{number}> is submitted to {default}queue <{jobs[0].queue}>.")
    return 0


def _read_script(call: Call, given: Options, command: list[str]) -> tuple[bytes, Options]:
    """Return the script to run, and all options. Options in the script apply only if LSF reads the script."""
    if not command:
        script = call.read_stdin()
        if not script.strip():
            raise RefusedError("Empty job. Job not submitted.")
        return script, merge_options(read_script_options(script.decode(errors="surrogateescape"))[0], given)
    line = " ".join(command)
    body = f"#!/bin/sh\n{line}\n".encode(errors="surrogateescape")
    parses = call.store.config.parse_script or os.environ.get("LSB_BSUB_PARSE_SCRIPT", "N").upper() == "Y"
    if parses and Path(command[0]).is_file():
        text = Path(command[0]).read_text(encoding="utf-8", errors="surrogateescape")
        return body, merge_options(read_script_options(text)[0], given)
    return body, given


def _check(options: Options, config: Config, call: Call) -> None:
    flavour = FLAVOURS[config.flavour]
    if config.root_refused and os.geteuid() == 0:
        raise RefusedError("User permission denied. Job not submitted.")
    for name in options:
        if name in NOT_FAKED:
            raise RefusedError(f"hpcbench's fake of LSF does not support {name}, although LSF does. Job not submitted.")
        if name in flavour.refuses or (name in CSM_ONLY and not flavour.csm):
            raise RefusedError(f"bsub: illegal option -- {name.lstrip('-')}\nJob not submitted.")
        if name == "-gpu" and not config.gpus:
            raise RefusedError("GPU resource is not available in the cluster. Job not submitted.")
    if flavour.csm and "-n" in options:
        raise RefusedError(f"{_EASY_MODE} Job not submitted." if "-nnodes" in options else _NO_SLOTS)
    if "-nnodes" in options and ("-R" in options or "-M" in options):
        raise RefusedError(f"{_EASY_MODE} Job not submitted.")
    if config.account_option and config.account_option not in options:
        raise RefusedError(f"This site wants an account: option {config.account_option}. Job not submitted.")
    if ("-wa" in options) != ("-wt" in options):
        raise RefusedError("Options -wa and -wt must be given together. Job not submitted.")
    if len(options.get("-alloc_flags", [])) > 1:
        call.warn(f"hpcbench's fake of LSF: only the last -alloc_flags counts: {options['-alloc_flags'][-1]}")
    for text in options.get("-R", []):
        _check_requirement(text)


def _check_requirement(text: str) -> None:
    remainder = re.sub(r"([a-z]+)\[[^\[\]]*\]", lambda match: "" if match[1] in _SECTIONS else "[", text)
    if "[" in remainder or "]" in remainder:
        raise RefusedError("Bad resource requirement syntax. Job not submitted.")


def _make_jobs(options: Options, config: Config, state: State) -> list[Job]:
    """Return the job or the array elements, to which no numbers have been assigned yet."""
    queue = _get_last(options, "-q") or next(iter(config.queues))
    if queue not in config.queues:
        raise RefusedError(f"{queue}: No such queue. Job not submitted.")
    name, indices, throttle = parse_array(_get_last(options, "-J"), config.max_array)
    hosts, per_host = _resolve_size(options, config)
    minutes = _parse_minutes(_get_last(options, "-W"), "RUNLIMIT")
    if minutes > config.get_most_minutes(queue, hosts):
        raise RefusedError("RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.")
    if "-x" in options and not config.queues[queue].get("exclusive", True):
        word = "EXCLUSIVE" if FLAVOURS[config.flavour].reasons else "exclusive"
        raise RefusedError(f"Queue does not accept {word} jobs. Job not submitted.")
    if hosts < config.queues[queue].get("min_nodes", 1):
        raise RefusedError("Too few processors requested. Job not submitted.")
    if hosts > config.get_most_nodes(queue):
        raise RefusedError("Too many processors requested. Job not submitted.")
    if state.is_full(queue, len(indices), config):
        raise RefusedError("The destination queue has reached its job limit. Job not submitted.")
    condition = _get_last(options, "-w")
    if condition:
        evaluate(condition, state)
    warning = None
    if "-wt" in options:
        ahead = _parse_minutes(_get_last(options, "-wt"), "job warning time")
        warning = (ahead * config.minute, signal_number(_get_last(options, "-wa")))
    now = time.time()
    return [
        Job(
            0,
            "",
            index=index,
            name=name,
            queue=queue,
            account=_get_last(options, config.account_option or "-P"),
            options=options,
            cwd=str(Path(_get_last(options, "-cwd") or Path.cwd()).absolute()),
            output=_get_last(options, "-oo") or _get_last(options, "-o"),
            error=_get_last(options, "-eo") or _get_last(options, "-e"),
            truncate="-oo" in options,
            hosts=hosts,
            per_host=per_host,
            depends=condition,
            orphan_ends="-ti" in options,
            throttle=throttle,
            limit=minutes * config.minute,
            warning=warning,
            rerunnable="-r" in options and "-rn" not in options,
            requeue_exits=[int(code) for code in re.findall(r"(?<!\S)\d+", _get_last(options, "-Q"))],
            state=HELD if "-H" in options else WAITING,
            submitted=now,
        )
        for index in indices
    ]


def _resolve_size(options: Options, config: Config) -> tuple[int, int]:
    """Return the number of hosts, and of slots per host. 0 slots mean a whole node."""
    if FLAVOURS[config.flavour].csm:
        nodes = _get_last(options, "-nnodes") or "1"
        if not re.fullmatch(r"[1-9]\d*", nodes):
            raise RefusedError("Bad argument for option -nnodes. Job not submitted.")
        return int(nodes), 0
    slots = _get_last(options, "-n") or "1"
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)?", slots):
        raise RefusedError("Bad argument for option -n. Job not submitted.")
    count = int(slots.split(",")[0])
    spans = re.findall(r"span\[(hosts|ptile)=(\d+)\]", " ".join(options.get("-R", [])))
    per_host = min(count, config.cores)
    if spans:
        per_host = count if spans[-1][0] == "hosts" else min(count, int(spans[-1][1]))
    if per_host > config.cores:
        raise RefusedError("Too many processors requested. Job not submitted.")
    return -(-count // per_host), 0 if "-x" in options else per_host


def _parse_minutes(text: str, what: str) -> float:
    match = re.fullmatch(r"(?:(\d+):)?(\d+)(?:/\S+)?", text)
    if text and not match:
        raise RefusedError(f"{text}: Bad {what} specification. Job not submitted.")
    return 60.0 * int(match[1] or 0) + int(match[2]) if match else 0.0


def _resolve_environment(options: Options) -> dict[str, str]:
    wanted = _get_last(options, "-env") or "all"
    environment = dict(os.environ) if wanted.split(",")[0].strip() == "all" else {}
    environment.setdefault("PATH", "/usr/bin:/bin")
    environment.setdefault("HOME", str(Path.home()))
    for word in (part.strip() for part in wanted.split(",")):
        name, equal, value = word.partition("=")
        if equal:
            environment[name] = value
        elif name in os.environ:
            environment[name] = os.environ[name]
    return environment


def _expand_path(job: Job, path: str) -> str:
    """Return the path of an output file. LSF replaces %J and %I. Relative paths refer to the job's directory."""
    if not path:
        return ""
    path = path.replace("%J", str(job.id)).replace("%I", str(job.index))
    full_path = Path(job.cwd, path)
    return str(full_path / f"{job.id}.out" if full_path.is_dir() else full_path)


def _get_last(options: Options, name: str) -> str:
    return options.get(name, [""])[-1]
