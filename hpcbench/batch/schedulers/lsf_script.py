"""Job script that runs a pickled function under LSF."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")

_RANKS = ("JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
"""Variables in which launchers pass the rank to a process. The first variable that is set is used."""


@dataclass(frozen=True)
class Parameters:
    """Job parameters of submitit, and LSF parameters, whose names in submitit start with ``lsf_``."""

    job_name: str = "submitit"
    time: int = 5
    """Time limit in minutes."""
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    mem_gb: float | None = None
    """Reserved memory per host in GB. No memory limit is set, because the unit of the limit depends on the site."""
    stderr_to_stdout: bool = False
    queue: str | None = None
    project: str | None = None
    """Project (option ``-P``)."""
    group: str | None = None
    """User group (option ``-G``)."""
    whole_nodes: bool = False
    """Whether to request whole nodes (``-nnodes``, on CORAL machines) instead of slots."""
    hand_in: str = "stdin"
    """Submission method: ``stdin``, or ``file`` if the site requires ``bsub script``."""
    launcher: str = "mpirun -n {tasks}"
    """Launch command for multiple tasks."""
    signal_delay_min: int = 2
    """Minutes between the checkpoint signal (``-wa``, ``-wt``) and the time limit, or 0 for no signal."""
    refuses: Sequence[str] = ()
    """Options that LSF refuses on this machine.

    If ``-wa`` and ``-wt`` are refused, functions receive no checkpoint signal.
    """
    array_parallelism: int = 256
    additional_parameters: Mapping[str, str | int | None] = field(default_factory=dict)
    """Additional options, such as ``{"-x": None}``."""
    setup: Sequence[str] = ()
    teardown: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.job_name):
            raise ValueError(f"job name {self.job_name!r}: use at most 64 letters, digits and . _ -")
        if self.hand_in not in ("stdin", "file"):
            raise ValueError(f"hand_in {self.hand_in!r}: must be stdin or file")
        for option in self.refuses:
            if option not in ("-wa", "-wt"):
                raise ValueError(f"refuses: {option!r}: must be -wa or -wt, the only options that can be left out")
        for name in ("time", "nodes", "tasks_per_node", "cpus_per_task", "array_parallelism"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)}: at least 1")
        for name in ("queue", "project", "group"):
            value = getattr(self, name)
            if value is not None and not re.fullmatch(r"[\w.:@/+-]+", value):
                raise ValueError(f"{name}: {value!r}: must be a name without blanks and quotes")
        for option, value in self.additional_parameters.items():
            if not re.fullmatch(r"--?[A-Za-z][\w-]*", option) or not str(value).isprintable():
                raise ValueError(
                    f"additional_parameters: {option!r}: {value!r}: must be an option and a value on one line"
                )

    @property
    def tasks(self) -> int:
        """Total number of processes."""
        return self.nodes * self.tasks_per_node


def one_line(text: str) -> str:
    """Quote text as one bash word without line breaks, because a line could start with a directive."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(char if char.isprintable() and char not in "\\'" else f"\\U{ord(char):08x}" for char in text)
    return f"$'{escaped}'"


def script_text(command: str, folder: Path, shape: Parameters, elements: int = 0) -> str:
    """Return the script text.

    The script itself opens the logs, because not every path can be written in an LSF directive.

    Parameters
    ----------
    command
        Shell command that loads the pickle in `folder` and runs it.
    elements
        Number of array elements, or 0 for a single job.
    """
    lines = ["#!/bin/bash", *_directives(shape, elements), ""]
    lines += ["trap '' USR1 USR2 # requests for a checkpoint, which the function handles, not the shell", ""]
    lines += [f"folder={one_line(str(folder))}"]
    lines += ["job=$LSB_JOBID array=$LSB_JOBID index=${LSB_JOBINDEX:-0}", '[ "$index" = 0 ] || job=${job}_$index']
    lines += ["folder=${folder//%j/$job} folder=${folder//%A/$array} folder=${folder//%a/$index}"]
    lines += ['mkdir -p "$folder"', f"cd {one_line(str(Path.cwd()))} || exit", ""]
    lines += ["export SUBMITIT_EXECUTOR=lsf"]
    lines += [f"export SUBMITIT_LSF_NTASKS={shape.tasks} SUBMITIT_LSF_NNODES={shape.nodes}"]
    lines += [f"export SUBMITIT_LSF_TASKS_PER_NODE={shape.tasks_per_node}", *shape.setup, ""]
    lines += ['export log="$folder/$job"', f"task={one_line(_task(command, shape))}"]
    launcher = shape.launcher.format(tasks=shape.tasks, nodes=shape.nodes, tasks_per_node=shape.tasks_per_node)
    lines += [f'{launcher} bash -c "$task"' if shape.tasks > 1 else 'bash -c "$task"']
    lines += ["status=$?", *shape.teardown, "exit $status", ""]
    return "\n".join(lines)


def _directives(shape: Parameters, elements: int) -> list[str]:
    name = shape.job_name
    if elements:
        name += f"[1-{elements}]%{min(elements, shape.array_parallelism)}"
    options: list[tuple[str, object]] = [("-J", f'"{name}"'), ("-W", shape.time), ("-o", "/dev/null")]
    options += [(option, value) for option, value in (("-q", shape.queue), ("-P", shape.project)) if value]
    options += [("-G", shape.group)] if shape.group else []
    if shape.whole_nodes:
        options.append(("-nnodes", shape.nodes))
    else:
        slots = shape.tasks_per_node * shape.cpus_per_task
        options += [("-n", shape.nodes * slots), ("-R", f'"span[ptile={slots}]"')]
        if shape.gpus_per_node:
            options.append(("-gpu", f'"num={shape.gpus_per_node}"'))
        if shape.mem_gb is not None:
            options.append(("-R", f'"rusage[mem={shape.mem_gb:g}GB]"'))
    if shape.signal_delay_min and shape.time > shape.signal_delay_min and not shape.refuses:
        options += [("-wa", "USR2"), ("-wt", shape.signal_delay_min)]
    options += shape.additional_parameters.items()
    return [f"#BSUB {option}" + ("" if value is None else f" {value}") for option, value in options]


def _task(command: str, shape: Parameters) -> str:
    """Return the shell commands that each process executes: read the rank, open the logs, and run `command`."""
    rank = "0"
    for name in reversed(_RANKS):
        rank = f"${{{name}:-{rank}}}"
    error = "2>&1" if shape.stderr_to_stdout else '2>> "${log}_${rank}_log.err"'
    return (
        f"rank={rank if shape.tasks > 1 else 0}; export SUBMITIT_LSF_RANK=$rank"
        " SUBMITIT_LSF_NODEID=$((rank / SUBMITIT_LSF_TASKS_PER_NODE))"
        " SUBMITIT_LSF_LOCAL_RANK=$((rank % SUBMITIT_LSF_TASKS_PER_NODE)); "
        f'exec {command} >> "${{log}}_${{rank}}_log.out" {error}'
    )
