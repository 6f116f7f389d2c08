"""Container settings of sites and studies, and the function that merges them."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from hpcbench.contract.section import DIRECTORY, Line, PathLine, Section

Kind = Literal["apptainer", "singularity", "pyxis", "podman-hpc", "shifter", "charliecloud"]
_BIND = re.compile(r"(/[^:,\x00-\x1f]*)(?::(/[^:,\x00-\x1f]*))?(:ro)?")
Directory = Annotated[str, Field(pattern=DIRECTORY, max_length=4096)]


class Container(Section):
    """The container in which ranks run. Usually the site sets how containers run, and the study sets the image."""

    kind: Kind | None = Field(None, description="Program that runs it; pyxis is Slurm's plugin for enroot.")
    image: PathLine | None = Field(
        None, description="A file, a directory (Charliecloud), or a name such as docker:org/x:1."
    )
    binds: list[Line] = Field(
        default_factory=list,
        description="Directories of the host to bind: SRC, SRC:DST or SRC:DST:ro. Those of the submission and of data "
        "files are always bound.",
    )
    gpu: Literal["auto", "nvidia", "rocm", "none"] = Field(
        "auto", description="Vendor of the GPU driver to add; auto is nvidia if ranks compute on GPUs."
    )
    mpi: Literal["hybrid", "bind"] = Field(
        "hybrid",
        description="hybrid: the image's MPI library, started by the host's launcher; bind: the host's library "
        "replaces that of the image.",
    )
    mpi_paths: list[Directory] = Field(
        default_factory=list, description="bind: directories of the host with its MPI library and the dependencies."
    )
    python: Line = Field("python3", description="The interpreter inside the container.")
    args: list[Line] = Field(default_factory=list, description="More arguments of the container's program.")

    @field_validator("binds")
    @classmethod
    def _whole_paths(cls, binds: list[str]) -> list[str]:
        for bind in binds:
            if not _BIND.fullmatch(bind):
                raise ValueError(
                    f"{bind!r} cannot be bound: write SRC, SRC:DST or SRC:DST:ro, with absolute paths without commas"
                )
        return binds


def merge_containers(site: Container | None, study: Container | None) -> Container | None:
    """Merge the containers of a site and a study. The study's values take precedence, and all binds are kept.

    Returns
    -------
    Container or None
        The result is None if neither the site nor the study sets an image, because a site may only describe how
        containers run.
    """
    containers = [container for container in (site, study) if container is not None]
    values = {name: getattr(container, name) for container in containers for name in container.model_fields_set}
    values["binds"] = list(dict.fromkeys(bind for container in containers for bind in container.binds))
    return Container(**values) if values.get("image") else None


def split_bind(bind: str) -> tuple[str, str, bool]:
    """Split a bind mount into its source, its destination, and a read-only flag."""
    fields = _BIND.fullmatch(bind)
    if not fields:
        raise ValueError(
            f"{bind!r} cannot be bound into a container: paths must be absolute, without colons and commas"
        )
    return fields[1], fields[2] or fields[1], bool(fields[3])
