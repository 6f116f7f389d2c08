"""Rank start-up by a fake launcher, with MPICH's mpiexec or as processes without MPI."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fakes.programs import RefusedError
from fakes.state import FIND_FAKES, MARK, RANK_MARK, Config, Job, Store

_ENTRY = f"{FIND_FAKES}; from fakes.ranks import become; become()"


@dataclass(frozen=True)
class Rank:
    """The fake placement of a rank."""

    host: str
    local_rank: int
    local_size: int
    gpus: Sequence[int]


def find_allocation(store: Store, job_id: str | None, complaint: str) -> Job:
    """Return the running job that this process belongs to.

    Raises
    ------
    RefusedError
        This process belongs to no running job.
    """
    mark = os.environ.get(MARK, "")
    for job in store.read().jobs:
        if mark == f"{store.directory}:{job.key}" and job_id == str(job.id) and job.places:
            return job
    raise RefusedError(complaint, 1)


def launch(
    store: Store, ranks: Sequence[Rank], command: Sequence[str], variables: Mapping[str, str], names: "Names"
) -> int:
    """Start the ranks, forward their output, wait for them, and return the exit status."""
    if not command:
        raise RefusedError("no command was given", 1)
    descriptions = [[rank.host, rank.local_rank, rank.local_size, list(rank.gpus)] for rank in ranks]
    environment = {
        **os.environ,
        **variables,
        "HPCBENCH_FAKE_RANKS": json.dumps({"ranks": descriptions, "names": names.for_json()}),
        RANK_MARK: "mpiexec",
    }
    each = [sys.executable, "-E", "-S", "-c", _ENTRY, *command]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    path = str(mpiexec) if mpiexec.exists() else shutil.which("mpiexec")
    if path:
        lines = [[path, "-n", str(len(ranks)), "-bind-to", "none", *_list_host_options(ranks, store), *each]]
        extra: list[dict[str, str]] = [{}]
    else:
        lines = [each] * len(ranks)
        extra = [{"PMI_RANK": str(k), "PMI_SIZE": str(len(ranks))} for k in range(len(ranks))]
    children = [subprocess.Popen(line, env={**environment, **more}) for line, more in zip(lines, extra, strict=True)]
    _end_with_us(children)
    statuses = [child.wait() for child in children]
    return max(128 - status if status < 0 else status for status in statuses)


@dataclass(frozen=True)
class Names:
    """Variables that contain a rank's index and location, set by the fake launcher."""

    rank: Sequence[str]
    size: Sequence[str]
    local_rank: Sequence[str]
    local_size: Sequence[str]
    gpus: bool = True
    """Whether the launcher limits CUDA_VISIBLE_DEVICES."""

    def for_json(self) -> list[object]:
        """Return the names in the format that `become` parses."""
        return [list(self.rank), list(self.size), list(self.local_rank), list(self.local_size), self.gpus]


def become() -> None:
    """Set the launcher's variables in a rank's process, and replace the process with the program."""
    descriptions = json.loads(os.environ.pop("HPCBENCH_FAKE_RANKS"))
    number = int(os.environ["PMI_RANK"])
    host, local_rank, local_size, gpus = descriptions["ranks"][number]
    *names, narrows = descriptions["names"]
    for group, value in zip(names, (number, len(descriptions["ranks"]), local_rank, local_size), strict=True):
        os.environ.update({name: str(value) for name in group})
    os.environ[RANK_MARK] = host
    if narrows:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in gpus)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as failure:
        sys.exit(f"{sys.argv[1]}: {failure.strerror}")


def _list_host_options(ranks: Sequence[Rank], store: Store) -> list[str]:
    """Return the options that make MPICH start ranks on the fake hosts, as it does with LSF's blaunch."""
    counts = Counter(rank.host for rank in ranks)
    hosts = ",".join(f"{host}:{count}" for host, count in counts.items())
    return ["-hosts", hosts, "-launcher", "lsf", "-launcher-exec", str(store.directory / "host")]


def split(config: Config, per_host: int, local_rank: int) -> list[int]:
    """Return the GPUs of a local rank if a node's GPUs are divided evenly."""
    if not config.gpus:
        return []
    each = max(1, config.gpus // per_host)
    first = local_rank * config.gpus // per_host if per_host > config.gpus else local_rank * each
    return list(range(first, first + each))


def _end_with_us(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Forward signals that would end the launcher to its ranks.

    Signals that were ignored at the start stay ignored.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(signal.SIGTERM)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handler: Callable[[int, FrameType | None], None] = stop
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
