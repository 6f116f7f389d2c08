"""Rank checks: the interpreter and its packages, the launcher, and a world of two ranks."""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpcbench.batch.schedulers.attempt import CommandOutcome, attempt
from hpcbench.batch.scripts.containers import contained
from hpcbench.batch.scripts.launchers import HOST_FILE, program_name, solve
from hpcbench.batch.sites.find_launcher import find_sibling
from hpcbench.batch.sites.met_ranks import remember_met
from hpcbench.batch.sites.site import Site
from hpcbench.doctor import probe
from hpcbench.doctor.check import Check, Health, report_missing, report_ok, report_unknown
from hpcbench.doctor.job_shell import MODULE_REMEDY, NO_MODULE, explain_failure, in_job, job_environment
from hpcbench.doctor.mpi import mpiexec

PATIENCE = 120.0
"""Deadline in seconds, long enough for imports from a slow file system."""
_WORLD = """
import os
from mpi4py import MPI
def say(text):
    if MPI.COMM_WORLD.Get_rank() == 0:
        os.write(1, text.encode() + b"\\n")
say(f"world={MPI.COMM_WORLD.allreduce(1)}")
say(f"cores={os.cpu_count()}")
from hpcbench.comm.gpu_aware import gpu_aware
found = gpu_aware(MPI.COMM_WORLD)
say(f"aware={found.answer.value} {' '.join(found.why.split())}")
"""
"""Program of a rank. Only rank 0 prints, with one write per line, because launchers interleave rank output."""
_NEEDED = ("python", "hpcbench", "numpy", "kernels", "codecs", "mpi4py", "torch")
_REMEDIES = {
    "hpcbench": "run pip install '.[train]' with this interpreter, in a checkout of hpcbench",
    "numpy": "pip install numpy for this interpreter",
    "codecs": "run pip install '.[train]' with this interpreter, in a checkout of hpcbench",
    "mpi4py": "pip install mpi4py for this interpreter, with the modules of the MPI library loaded",
    "torch": "pip install torch for this interpreter",
    "CuPy": "pip install cupy-cuda12x (CUDA 12) or cupy-cuda13x (CUDA 13) for this interpreter: GPU kernels need it",
    "kernels": "install hpcbench where g++ and make are available: pip install .",
}


def check_interpreter(site: Site, *, run: bool = False) -> list[Check]:
    """Check the packages of the ranks' interpreter, with the site's modules and setup, as in a job.

    Parameters
    ----------
    run
        Whether to start a rank on a cluster. An interpreter inside an image can only be checked by a rank.
    """
    python = sys.executable if site.python == "auto" else site.python
    source = Path(probe.__file__).read_text(encoding="utf-8")
    if site.container is not None and has_image(site):
        python = f"{site.container.python} in {site.container.image}"
        if site.scheduler.kind != "local" and not run:
            return [
                report_unknown(
                    "python",
                    f"{python}: not started on a cluster's login node",
                    "start a rank with hpcbench doctor --run, where this is allowed",
                )
            ]
        try:
            with rank_command(site, 1) as command:
                answer = attempt(in_job(site, [*command, "-c", source]), seconds=PATIENCE, env=job_environment())
        except ValueError as error:
            return [report_unknown("python", f"a rank cannot be started: {error}", needed=True)]
    else:
        answer = attempt(in_job(site, [python, "-c", source]), seconds=PATIENCE, env=job_environment())
    lines = {}
    for line in answer.out.splitlines():
        try:
            name, health, fact, remedy = json.loads(line)
        except ValueError:
            continue  # modules may print messages
        lines[name] = (Health(health), fact, remedy)
    torch_fact = lines["torch"][1] if "torch" in lines else ""
    kernels_on_gpu = site.device == "cuda" and ", ROCm " not in torch_fact
    wanted = {*_NEEDED, *(["CuPy"] if kernels_on_gpu else [])}
    checks = []
    if not lines:
        needs_no_place = site.scheduler.kind == "local" or answer.status == NO_MODULE
        where = "" if needs_no_place else "; it may exist only on compute nodes"
        fact = f"{shlex.quote(python)}: {explain_failure(answer) or 'printed nothing'}{where}"
        health = Health.MISSING if site.scheduler.kind == "local" else Health.UNKNOWN
        field = "container.python" if has_image(site) else "python"
        remedy = f"name the ranks' interpreter as `{field}` of the site file"
        return [Check("python", health, fact, MODULE_REMEDY if answer.status == NO_MODULE else remedy, needed=True)]
    for name in probe.STAGES:
        needed = name in wanted
        if name not in lines:
            checks.append(
                report_unknown(name, f"the interpreter ended before this check: {answer.problem}", needed=needed)
            )
            continue
        health, fact, remedy = lines[name]
        if name == "torch" and site.device == "cuda" and fact.endswith("built without CUDA"):
            health, remedy = Health.MISSING, "install the build of PyTorch for the CUDA version of the nodes"
        if health is not Health.OK and needed:
            remedy = remedy or _REMEDIES.get(name, "")
        checks.append(Check(name, health, fact, remedy, needed))
    return checks


def check_launchers(site: Site) -> list[Check]:
    """Check the site's launcher and other launchers on this machine."""
    wanted = launcher_of(site)
    answer = attempt(in_job(site, ["sh", "-c", 'command -v -- "$0"', wanted]))
    path = answer.out.strip().splitlines()
    here = site.scheduler.kind == "local"
    name = f"launcher {wanted.rpartition('/')[2]}"
    checks = []
    if not path:
        remedy = (
            "pip install mpich installs a launcher" if here else "correct launcher in the site file, or add its module"
        )
        fact = f"{wanted} was not found"
        if answer.status == NO_MODULE:
            fact, remedy = f"not searched: {explain_failure(answer)}", MODULE_REMEDY
        checks.append(
            report_missing(name, fact, remedy, needed=True)
            if here
            else report_unknown(
                name, fact if answer.status == NO_MODULE else f"{fact}; it may be available in jobs", remedy
            )
        )
    else:
        mpi = mpiexec(path[-1]) if site.launcher.kind in ("mpich", "openmpi", "mvapich") else None
        if mpi and mpi.kind and mpi.kind != site.launcher.kind:
            checks.append(
                report_missing(
                    name, f"{mpi.fact}, not {site.launcher.kind}", f"write launcher: {{kind: {mpi.kind}}}", needed=True
                )
            )
        else:
            checks.append(report_ok(name, mpi.fact if mpi else path[-1], needed=True))
    for other in ("mpiexec", "mpirun", "srun", "jsrun", "lrun", "ibrun"):
        place = shutil.which(other)
        if place and other != wanted and place != wanted:
            mpi = mpiexec(place) if other.startswith("mpi") else None
            checks.append(report_ok(f"also {other}", mpi.fact if mpi else place))
    return checks


def check_world(site: Site, *, run: bool, alone: bool = True) -> list[Check]:
    """Start two ranks as in a run, and check their world and MPI library.

    A launcher of a different MPI library would start two worlds of one rank each, and exit with 0.

    Parameters
    ----------
    run
        Whether to start ranks on a cluster.
    alone
        Whether no scheduler responds on this machine, or the user named the site. If neither is the case, the machine
        may be a login node.
    """
    if not alone and not run:
        remedy = "name the site with hpcbench doctor --site NAME --run; --draft-site prints a draft of a site file"
        return [
            report_unknown(
                "two ranks", "not started, because this machine has a scheduler and may be a login node", remedy
            ),
            _aware(site, ""),
        ]
    if site.scheduler.kind != "local" and not run:
        remedy = "start two ranks with hpcbench doctor --run, where this is allowed"
        return [report_unknown("two ranks", "not started on a cluster's login node", remedy), _aware(site, "")]
    try:
        with rank_command(site, 2) as command:
            answer = attempt(in_job(site, [*command, "-c", _WORLD]), seconds=PATIENCE, env=job_environment())
    except ValueError as error:
        return [report_unknown("two ranks", f"two ranks do not fit on a node of the site: {error}"), _aware(site, "")]
    wanted = None if site.node.cores == "auto" else site.node.cores
    meets = _meet(shlex.join(command), answer, wanted, shares=site.oversubscribe)
    if meets.health is Health.OK and site.scheduler.kind != "local":
        remember_met(site)
    return [meets, _aware(site, answer.out)]


def has_image(site: Site) -> bool:
    """Return whether the site file sets both kind and image of a container."""
    return site.container is not None and site.container.kind is not None and site.container.image is not None


@contextlib.contextmanager
def rank_command(site: Site, ranks: int) -> Iterator[list[str]]:
    """Yield the launch command for ranks on one node, up to the interpreter, including the container.

    Raises
    ------
    ValueError
        The ranks do not fit on a node, or this kind of container cannot be started this way.
    """
    _, launch = solve(site, nodes=1, ranks_per_node=ranks, program=launcher_of(site))
    with listed_hosts(launch, ranks) as launch_line:
        if site.container is None or not has_image(site):
            yield [*launch_line, sys.executable if site.python == "auto" else site.python]
            return
        root = str(Path(site.work).absolute() if site.work and Path(site.work).is_dir() else Path.cwd())
        inside = contained(
            site.container, site, ranks_per_node=ranks, root=root, reads=(), names=tuple(site.environment)
        )
        yield [*launch_line, *inside.launch, *inside.inside, site.container.python]


@contextlib.contextmanager
def listed_hosts(launch: list[str], ranks: int) -> Iterator[list[str]]:
    """Yield the launch command. If the command contains a host file, the file lists this host once per rank."""
    if HOST_FILE not in launch:
        yield launch
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(f"{socket.gethostname()}\n" * ranks)
        file.flush()
        yield [file.name if word == HOST_FILE else word for word in launch]


def _meet(command: str, world_answer: CommandOutcome, wanted: int | None, *, shares: bool) -> Check:
    """Check that the ranks form one world, and that their node has enough cores, unless ranks share cores."""
    name = "two ranks"
    sizes = re.findall(r"world=(\d+)", world_answer.out)
    cores = re.search(r"cores=(\d+)", world_answer.out)
    if sizes == ["2"] and cores and wanted is not None and int(cores[1]) < wanted and not shares:
        return report_missing(
            name,
            f"{command}: a world of 2, on a node with {cores[1]} cores, but the site file has {wanted}",
            f"write node: {{cores: {cores[1]}}}, or oversubscribe: true for trials",
            needed=True,
        )
    if sizes == ["2"]:
        return report_ok(name, f"{command}: a world of 2", needed=True)
    if sizes and set(sizes) == {"1"}:
        remedy = "launcher and mpi4py use different MPI libraries (srun: set another --mpi= in launcher.args)"
        return report_missing(name, f"{command}: each rank is a separate world", remedy, needed=True)
    if world_answer.present and world_answer.status is None:
        remedy = "check whether the ranks wait for each other, or the job waits for nodes"
        return report_unknown(name, f"{command}: {world_answer.problem}", remedy, needed=True)
    error = last_error(world_answer.err)
    fact = f"{command}: {error or world_answer.problem or f'worlds of {sizes}'}"
    remedy = probe.NO_LIBRARY if _LACKS_LIBRARY.search(error) else "start the command by hand"
    if not world_answer.present:
        remedy = "install the launcher first, or correct launcher: of the site file"
    return report_missing(name, fact, remedy, needed=True)


_LACKS_LIBRARY = re.compile(r"cannot load MPI library|libmpi\w*\.so\S*: cannot open", re.IGNORECASE)


def last_error(text: str) -> str:
    """Return the last error printed by a rank, without the launcher's prefix, or an empty string if none was printed.

    Launchers print their own lines before and after the error.
    """
    errors = re.findall(r"(?:^|[\s:>\]])((?:\w+\.)*\w*(?:Error|Exception)\b: .+)$", text, re.MULTILINE)
    return " ".join(errors[-1].split())[:200] if errors else ""


def _aware(site: Site, printed: str) -> Check:
    """Check whether the MPI library accepts device pointers, according to the rank output."""
    name = "GPU-aware MPI"
    match = re.search(r"aware=(\w+) (.*)", printed)
    answer, why = match.groups() if match else ("", "")
    variable = os.environ.get("MPICH_GPU_SUPPORT_ENABLED")
    here = f"; MPICH_GPU_SUPPORT_ENABLED is {variable} in this shell" if variable else ""
    if not answer:
        return report_unknown(
            name, f"only ranks can query the MPI library, but no rank was started, or the ranks ended first{here}"
        )
    if answer == "yes":
        return report_ok(name, why)
    remedy = "messages go through the host; load a GPU-aware build if the site has one" if site.device == "cuda" else ""
    return report_missing(name, why, remedy) if answer == "no" else report_unknown(name, f"{why}{here}", remedy)


def launcher_of(site: Site) -> str:
    """Return the site's launcher program. If ranks run on this machine, prefer the program next to the interpreter."""
    name = site.launcher.program or program_name(site.launcher.kind)
    sibling = find_sibling(name) if site.scheduler.kind == "local" else None
    return sibling or name
