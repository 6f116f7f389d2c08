"""Tests of containers: commands of each kind with each launcher, refused settings, and merged site and study settings.

The commands are stored in golden/containers.txt. HPCBENCH_REGOLD=1 rewrites the file.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from launch_cases import site

import hpcbench
from hpcbench.batch.scripts.containers import check, contained
from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.site import Site
from hpcbench.batch.sites.site_rules import faults
from hpcbench.errors import UserError
from hpcbench.study.container import Container, merge_containers
from hpcbench.train import container as inside

GOLDEN = Path(__file__).parent / "golden" / "containers.txt"
LAUNCHERS = {
    "srun": site("perlmutter", launcher__visibility="all"),
    "jsrun": site("summit"),
    "lrun": site("lassen"),
    "mpirun": site("marenostrum5"),
    "mpiexec": site("slurm-cluster", launcher__kind="mpich"),
    "ibrun": site("vista"),
    "flux": site("tuolumne", device="cuda", launcher__kind="flux"),
}
IMAGES = {
    "apptainer": "/sw/hpcbench.sif",
    "singularity": "/sw/hpcbench.sif",
    "pyxis": "/sw/hpcbench.sqsh",
    "podman-hpc": "localhost/hpcbench:1",
    "shifter": "docker:me/hpcbench:1",
    "charliecloud": "/sw/hpcbench",
}
ROOT = "/scratch/me/results/demo/001"


def make_container(kind: str, **changes: Any) -> Container:
    return Container.model_validate({"kind": kind, "image": IMAGES[kind], **changes})


def line(container: Container, where: Site, ranks: int | None = None, **changes: Any) -> str:
    """Return the command that starts a rank."""
    per_node = ranks or where.node.gpus
    _, launch = solve(where, nodes=2, ranks_per_node=per_node)
    more = {"root": ROOT, "reads": ["/data/text/book.txt"], "names": ["OMP_NUM_THREADS"], **changes}
    command = contained(container, where, ranks_per_node=per_node, **more)
    return " ".join([*launch, *command.launch, *command.inside, container.python])


def lines() -> list[str]:
    """Return each container kind's commands: with each launcher, with the host's MPI library, and with all settings."""
    lines_of_kinds = []
    for kind in IMAGES:
        for launcher, where in LAUNCHERS.items():
            if kind != "pyxis" or launcher == "srun":
                lines_of_kinds.append(f"{kind}, {launcher}: {line(make_container(kind), where)}")
    paths = ["/opt/cray/pe/lib64", "/opt/cray/libfabric/lib64"]
    for kind in IMAGES:
        bound = make_container(kind, mpi="bind", mpi_paths=paths)
        lines_of_kinds.append(f"{kind}, the host's MPI library: {line(bound, LAUNCHERS['srun'])}")
        aware = Site.model_validate({**LAUNCHERS["srun"].model_dump(exclude_unset=True), "gpu_aware_mpi": True})
        more = make_container(
            kind, mpi="bind", mpi_paths=paths, binds=["/sw", "/data:/in"], args=["--more"], python="/opt/py"
        )
        lines_of_kinds.append(f"{kind}, more: {line(more, aware)}")
    return lines_of_kinds


def test_commands_of_each_kind_with_each_launcher_are_the_golden_ones() -> None:
    text = "".join(f"{line}\n" for line in lines())
    if os.environ.get("HPCBENCH_REGOLD"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("golden_line", lines(), ids=lambda golden_line: golden_line.partition(":")[0])
def test_the_order_is_launcher_container_interpreter(golden_line: str) -> None:
    """The container's arguments follow the launcher's arguments, and no launcher option follows the image."""
    what, _, command = golden_line.partition(": ")
    kind = what.partition(",")[0]
    first, *arguments = command.split()
    assert first in (*LAUNCHERS, "srun"), command
    program = {"pyxis": f"--container-image={IMAGES['pyxis']}", "charliecloud": "ch-run"}.get(kind, kind)
    image = arguments.index(next(word for word in arguments if word.endswith(IMAGES[kind])))
    assert arguments.index(program) <= image < len(arguments) - 1
    assert arguments[-1] in ("python3", "/opt/py")
    assert not [word for word in arguments[image + 1 :] if re.match(r"--?(n|np|nodes|ntasks|bind-to)\b", word)]
    for path in (ROOT, "/data"):
        assert any(path in word for word in arguments), "ranks read this path"


def test_ranks_of_a_node_share_a_charliecloud_container() -> None:
    assert "ch-run --join --join-ct=4 " in line(make_container("charliecloud"), LAUNCHERS["srun"], 4)
    assert "--join" not in line(make_container("charliecloud"), LAUNCHERS["ibrun"], 1)


def test_charliecloud_has_the_hosts_tmp_anyway() -> None:
    command = line(make_container("charliecloud"), LAUNCHERS["srun"], root="/tmp/x", reads=["/tmp/text"])
    assert "-b" not in command.split() and " env -u TMPDIR ch-run " in command, "otherwise TMPDIR would replace /tmp"
    container = make_container("charliecloud", args=["--private-tmp"], binds=["/tmp/a:/b"])
    binds = re.findall(r"-b (\S+)", line(container, LAUNCHERS["srun"], root="/tmp/x", reads=[]))
    assert binds == ["/tmp/x:/tmp/x", "/tmp/a:/b"]


def test_a_path_below_a_bind_is_not_bound_again() -> None:
    container = make_container("apptainer", binds=["/scratch", "/data/text:/text", "/scratch/x:ro"])
    binds = re.findall(r"--bind (\S+)", line(container, LAUNCHERS["srun"]))
    assert binds == ["/data/text:/data/text", "/scratch:/scratch", "/data/text:/text"]


@pytest.mark.parametrize(
    ("fields", "where", "message"),
    [
        ({"image": "x"}, "srun", "container.kind: is set neither"),
        ({"kind": "pyxis", "image": "x"}, "jsrun", "pyxis is part of srun, and the launcher of summit is jsrun"),
        (
            {"kind": "apptainer", "image": "x", "mpi": "bind"},
            "srun",
            "container.mpi_paths: is empty, but container.mpi bind needs",
        ),
        ({"kind": "pyxis", "image": "x", "gpu": "rocm"}, "srun", "only NVIDIA's driver"),
        ({"kind": "podman-hpc", "image": "x", "gpu": "rocm"}, "srun", "only for NVIDIA"),
        ({"kind": "shifter", "image": "x", "gpu": "rocm"}, "srun", "only for NVIDIA"),
        ({"kind": "charliecloud", "image": "x", "gpu": "nvidia"}, "srun", "ch-fromhost"),
        ({"kind": "charliecloud", "image": "x", "binds": ["/a:/b:ro"]}, "srun", "has no read-only binds: remove :ro"),
    ],
)
def test_settings_that_a_kind_lacks_are_refused(fields: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check(Container.model_validate(fields), LAUNCHERS[where])


def test_a_site_that_cannot_run_its_containers_has_a_fault() -> None:
    data = LAUNCHERS["jsrun"].model_dump(exclude_unset=True)
    messages = faults(Site.model_validate({**data, "container": {"kind": "pyxis"}}))
    assert [fault.path for fault in messages] == [("container",)] and "pyxis is part of srun" in messages[0].problem
    assert faults(Site.model_validate({**data, "container": {"kind": "apptainer"}})) == []


@pytest.mark.parametrize("bind", ["relative", "/a:/b:/c", "/a,/b", "/a:b", "/a\n/b", ""])
def test_binds_are_whole_paths(bind: str) -> None:
    with pytest.raises(ValueError, match="binds"):
        Container.model_validate({"binds": [bind]})


def test_a_study_completes_the_container_of_its_site() -> None:
    of_site = Container.model_validate({"kind": "apptainer", "binds": ["/sw"], "gpu": "rocm", "python": "/opt/py"})
    assert merge_containers(of_site, None) is None and merge_containers(None, None) is None, "no image is set"
    of_study = Container.model_validate({"image": "/x.sif", "binds": ["/data", "/sw"], "gpu": "none"})
    merged = merge_containers(of_site, of_study)
    assert merged is not None and merged.model_dump() == {
        "kind": "apptainer",
        "image": "/x.sif",
        "binds": ["/sw", "/data"],
        "gpu": "none",
        "python": "/opt/py",
        "mpi": "hybrid",
        "mpi_paths": [],
        "args": [],
    }


# ---------------------------------------------------------------- inside

WHERE = {"HPCBENCH_CONTAINER": "apptainer /x.sif"}
MAPS = (
    "7f00-7f01 r-xp 00000000 08:01 42    {}\n7f02-7f03 rw-p 0 00:00 0   [heap]\n7f04-7f05 r--p 0 1 /usr/lib/libm.so.6\n"
)


def test_another_version_in_the_image_is_refused() -> None:
    inside.check_version({})
    inside.check_version({**WHERE, "HPCBENCH_VERSION": hpcbench.__version__})
    with pytest.raises(UserError, match=r"apptainer /x\.sif: has hpcbench .* the job needs 0\.0\.7: build the image"):
        inside.check_version({**WHERE, "HPCBENCH_VERSION": "0.0.7"})


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        ("/host/mpi/lib/libmpi.so.12.3", None),
        ("/host/ofi/libmpi_cray.so.12", None),
        ("/usr/lib/x86_64-linux-gnu/libmpich.so.12", "ranks use /usr/lib/x86_64-linux-gnu/libmpich.so.12"),
        ("/host/mpi-other/libmpi.so", "ranks use /host/mpi-other/libmpi.so"),
        ("/host/mpi/lib/libfabric.so.1", "ranks use no MPI library"),
    ],
)
def test_ranks_that_load_the_images_library_instead_of_the_hosts_are_refused(
    tmp_path: Path, loaded: str, message: str | None
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPS.format(loaded))
    environment = {**WHERE, "HPCBENCH_MPI_PATHS": "/host/mpi:/host/ofi/"}
    inside.check_library({}, maps)
    if message is None:
        inside.check_library(environment, maps)
    else:
        with pytest.raises(UserError, match=re.escape(message)):
            inside.check_library(environment, maps)


def test_the_library_of_this_process_is_detected() -> None:
    from mpi4py import MPI  # noqa: F401

    assert inside.libraries(Path("/proc/self/maps").read_text()), "the MPI library of the tests"
