"""The fake `flux`: commands that submit, list and cancel jobs, and commands that a job script calls.

Sources: flux-core, flux-batch(1), flux-cancel(1), flux-job(1), flux-resource(1), flux-hostlist(1).
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from fakes.flux import list_end_signals
from fakes.flux.directives import read_directives
from fakes.flux.ids import format_id, make_id, parse_id
from fakes.flux.jobs import jobs
from fakes.flux.options import make_parser, parse_seconds, parse_warning
from fakes.flux.run import run
from fakes.programs import Call, RefusedError, register_program
from fakes.state import ALIVE, ENDED, EXITED, WAITING, Config, Job, State

VERSION = "commands:    \t\thpcbench's fake of flux-core, which runs jobs on this machine"


@register_program("flux")
def flux(call: Call) -> int:
    """Run one of the commands."""
    arguments = list(call.argv)
    while arguments[:1] == ["--parent"]:
        arguments.pop(0)
    command = arguments.pop(0) if arguments else "--help"
    if command in ("--version", "-V", "version"):
        print(VERSION)
        return 0
    if command not in _COMMANDS:
        raise RefusedError(f"flux: hpcbench's fake of flux has no command {command!r}: only {', '.join(_COMMANDS)}", 1)
    try:
        return _COMMANDS[command](call, arguments)
    except ValueError as error:
        raise RefusedError(f"flux-{command}: ERROR: {error}", 1) from None


def run_batch(call: Call, argv: list[str]) -> int:
    """Queue a script. Command-line options override the script's directives."""
    reader = make_parser("batch")
    arguments = reader.parse_args(argv)
    script, command, name = _read_script(call, arguments)
    header = read_directives(script.decode(errors="surrogateescape"))
    try:
        arguments = reader.parse_args([*header, *argv])
    except RefusedError as refusal:
        raise RefusedError(f"{refusal} ({name})", refusal.status) from None
    config = call.store.config
    job = _make_job(arguments, config, name)
    with call.store.change() as state:
        _check(job, state, config)
        job.id = make_id(state.next)
        state.next += 1
        path = call.store.locate_file(f"{job.id}.sh")
        path.write_bytes(script)
        job.script, job.arguments = str(path), command
        job.output = _expand_path(job, arguments.output or "flux-{{id}}.out")
        job.error = _expand_path(job, arguments.error) if arguments.error else ""
        environment = _resolve_environment(arguments)
        call.store.locate_file(f"{job.id}.env.json").write_text(json.dumps(environment), encoding="ascii")
        state.jobs.append(job)
    print(format_id(job.id))
    return 0


def _read_script(call: Call, arguments: argparse.Namespace) -> tuple[bytes, list[str], str]:
    if arguments.wrap:
        text = " ".join(arguments.command) if arguments.command else call.read_stdin().decode()
        return f"#!/bin/sh\n{text}\n".encode(), [], "wrap"
    if not arguments.command:
        script, name, command = call.read_stdin(), "batch", []
    else:
        name, *command = arguments.command
        try:
            script = Path(name).read_bytes()
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror}") from None
    if not script.startswith(b"#!"):
        raise ValueError(f"{name} does not appear to be a script, or failed to encode as utf-8")
    return script, command, Path(name).name


def _make_job(arguments: argparse.Namespace, config: Config, name: str) -> Job:
    if arguments.count is None and arguments.nodes is None:
        raise ValueError("At least one of --nslots or --nodes must be specified")
    limit = parse_seconds(arguments.time_limit, bare=60.0) if arguments.time_limit else 0.0
    queue = arguments.queue or next(iter(config.queues))
    if queue not in config.queues:
        raise ValueError(f"[Errno 22] Invalid queue '{queue}' specified")
    nodes = arguments.nodes or -(-arguments.count * (arguments.cores_each or 1) // config.cores)
    slots = arguments.count or nodes
    cores = -(-slots // nodes) * (arguments.cores_each or 1)
    gpus = -(-slots // nodes) * (arguments.gpus_each or 0)
    if nodes > config.nodes or cores > config.cores or gpus > config.gpus:
        raise ValueError("[Errno 22] unsatisfiable request")
    if limit / 60 > config.get_most_minutes(queue, nodes):
        raise ValueError(f"[Errno 22] requested duration exceeds policy limit for queue {queue}")
    if not config.queues[queue].get("min_nodes", 1) <= nodes <= config.get_most_nodes(queue):
        raise ValueError(f"[Errno 22] number of nodes is outside policy limits for queue {queue}")
    scale = config.minute / 60
    signal = parse_warning(arguments.signal) if arguments.signal is not None else None
    return Job(
        0,
        "",
        name=arguments.job_name or name,
        queue=queue,
        account=arguments.bank or _parse_attribute(arguments, "bank"),
        cwd=str(Path(arguments.cwd or Path.cwd()).absolute()),
        hosts=nodes,
        per_host=0 if arguments.exclusive or arguments.count is None else cores,
        depends=" ".join(arguments.dependency),
        orphan_ends=True,
        limit=limit * scale,
        warning=(signal[0] * scale, signal[1]) if signal else None,
        state=WAITING,
        submitted=time.time(),
    )


def _check(job: Job, state: State, config: Config) -> None:
    if config.account_option and not job.account:
        raise ValueError("[Errno 22] a bank is required by this site: its account")
    if state.is_full(job.queue, 1, config):
        raise ValueError(f"[Errno 22] user has max-jobs jobs in queue {job.queue}")
    for dependency in job.depends.split():
        scheme, _, id = dependency.partition(":")
        if scheme not in ("after", "afterok", "afterany", "afternotok"):
            raise ValueError(f'[Errno 22] dependency scheme "{scheme}" not supported')
        if not state.find(parse_id(id)):
            raise ValueError(f"[Errno 22] {scheme}: job {id} not found")


def _parse_attribute(arguments: argparse.Namespace, name: str) -> str:
    values = [
        text.partition("=")[2] for text in arguments.setattr if text.partition("=")[0] in (name, f"system.{name}")
    ]
    return values[-1] if values else ""


def _resolve_environment(arguments: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    for name in arguments.env_remove:
        environment = (
            {} if name == "*" else {variable: value for variable, value in environment.items() if variable != name}
        )
    for text in arguments.env:
        name, equal, value = text.partition("=")
        if text == "-*":
            environment = {}
        elif equal:
            environment[name] = value
        elif name in os.environ:
            environment[name] = os.environ[name]
    return environment


def _expand_path(job: Job, template: str) -> str:
    expanded = (
        template.replace("{{id}}", format_id(job.id)).replace("{{id.dec}}", str(job.id)).replace("{{name}}", job.name)
    )
    return str(Path(job.cwd, expanded))


def cancel(call: Call, argv: list[str]) -> int:
    """End jobs."""
    status, note, ids = 0, "", []
    while argv:
        word = argv.pop(0)
        if word in ("-m", "--message") and argv:
            note = argv.pop(0)
        elif word in ("-q", "--quiet"):
            continue
        elif word.startswith("-"):
            raise RefusedError(f"flux-cancel: error: unrecognized arguments: {word}", 2)
        else:
            ids.append(word)
    with call.store.change() as state:
        for id in ids:
            jobs = state.find(parse_id(id))
            if not jobs or jobs[0].state in ENDED:
                call.warn(f"flux-cancel: ERROR: {id}: {'job is inactive' if jobs else 'unknown job id'}")
                status = 1
                continue
            job = jobs[0]
            job.note = note
            if job.state in ALIVE:
                job.plan = list_end_signals(time.time(), call.store.config, "owner")
            else:
                job.state, job.why, job.ended = EXITED, "owner", time.time()
    return status


def run_job(call: Call, arguments: list[str]) -> int:
    """Run ``flux job id`` or ``flux job cancel``."""
    if arguments[:1] == ["cancel"]:
        return cancel(call, arguments[1:])
    if arguments[:1] != ["id"]:
        raise RefusedError(f"flux-job: hpcbench's fake supports id and cancel, not {' '.join(arguments[:1])}", 1)
    form = next((word.partition("=")[2] for word in arguments if word.startswith("--to=")), "dec")
    for word in arguments[1:]:
        if not word.startswith("-"):
            number = parse_id(word)
            print(number if form == "dec" else format_id(number))
    return 0


def _find_enclosing_job(call: Call) -> Job:
    """Return the job that this process belongs to."""
    enclosing = os.environ.get("FLUX_ENCLOSING_ID", "")
    jobs = call.store.read().find(parse_id(enclosing)) if enclosing else []
    if not jobs:
        raise ValueError("Unable to connect to Flux: ENOENT: No such file or directory")
    return jobs[0]


def run_resource(call: Call, argv: list[str]) -> int:
    """Run ``flux resource list -s up -no {nnodes}``, for the job or, outside a job, for the machine."""
    config = call.store.config
    hosts = list(_find_enclosing_job(call).places) if "FLUX_ENCLOSING_ID" in os.environ else config.node_names
    form = next((text for text in argv if "{" in text), "")
    values = {"nnodes": len(hosts), "nodelist": ",".join(hosts), "state": "free"}
    values |= {"ncores": len(hosts) * config.cores, "ngpus": len(hosts) * config.gpus}
    if form:
        form = form[form.index("{") :]
        print(form.format(**values))
        return 0
    print("     STATE NNODES   NCORES    NGPUS NODELIST")
    print(f"      free {values['nnodes']:>6} {values['ncores']:>8} {values['ngpus']:>8} {values['nodelist']}")
    return 0


def run_hostlist(call: Call, argv: list[str]) -> int:
    """Run ``flux hostlist -e local`` to print the job's hosts."""
    separator = " " if {"-e", "--expand"} & set(argv) else ","
    if {"-c", "--count"} & set(argv):
        print(len(_find_enclosing_job(call).places))
    else:
        print(separator.join(_find_enclosing_job(call).places))
    return 0


def run_getattr(call: Call, argv: list[str]) -> int:
    """Run ``flux getattr jobid``, ``size`` or ``hostlist``."""
    job = _find_enclosing_job(call)
    values = {"jobid": format_id(job.id), "size": str(len(job.places)), "hostlist": ",".join(job.places)}
    if not argv or argv[0] not in values:
        raise ValueError(f"{' '.join(argv)}: No such file or directory")
    print(values[argv[0]])
    return 0


_COMMANDS: dict[str, Callable[[Call, list[str]], int]] = {
    "batch": run_batch,
    "run": run,
    "jobs": jobs,
    "cancel": cancel,
    "job": run_job,
    "resource": run_resource,
    "hostlist": run_hostlist,
    "getattr": run_getattr,
}
