"""The container that ranks run in: how a site runs containers, which image a study takes, and both together."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from hpcbench.contract.section import DIRECTORY, Line, PathLine, Section

Kind = Literal["apptainer", "singularity", "pyxis", "podman-hpc", "shifter", "charliecloud"]
_BIND = re.compile(r"(/[^:,\x00-\x1f]*)(?::(/[^:,\x00-\x1f]*))?(:ro)?")
Directory = Annotated[str, Field(pattern=DIRECTORY, max_length=4096)]


class Container(Section):
    """The container of the ranks. A site says how it runs them, a study which image, and each may say all of it."""

    kind: Kind | None = Field(None, description="What runs it; pyxis is Slurm's plugin for enroot.")
    image: PathLine | None = Field(
        None, description="A file, a directory (Charliecloud), or a name such as docker:org/x:1."
    )
    binds: list[Line] = Field(
        default_factory=list,
        description="Directories of the host to see inside: SRC, SRC:DST or SRC:DST:ro. The submission's own and those "
        "of data files are always among them.",
    )
    gpu: Literal["auto", "nvidia", "rocm", "none"] = Field(
        "auto", description="Whose driver to bring in; auto is nvidia where ranks compute on GPUs."
    )
    mpi: Literal["hybrid", "bind"] = Field(
        "hybrid",
        description="hybrid: the image's MPI library, started by the host's launcher; bind: the host's library, in the "
        "place of the image's.",
    )
    mpi_paths: list[Directory] = Field(
        default_factory=list, description="bind: the host's directories that hold its MPI library and what that needs."
    )
    python: Line = Field("python3", description="The interpreter, inside.")
    args: list[Line] = Field(default_factory=list, description="More arguments of the container's program.")

    @field_validator("binds")
    @classmethod
    def _whole_paths(cls, binds: list[str]) -> list[str]:
        for bind in binds:
            if not _BIND.fullmatch(bind):
                raise ValueError(
                    f"{bind!r} is no bind: say SRC, SRC:DST or SRC:DST:ro, with whole paths without commas"
                )
        return binds


def joined(site: Container | None, study: Container | None) -> Container | None:
    """What a site and a study say together: the study's words count, and all binds.

    Returns
    -------
    Container or None
        None where no image is named: a site alone may only say how containers are run.
    """
    said = [one for one in (site, study) if one is not None]
    values = {name: getattr(one, name) for one in said for name in one.model_fields_set}
    values["binds"] = list(dict.fromkeys(bind for one in said for bind in one.binds))
    return Container(**values) if values.get("image") else None


def parts_of(bind: str) -> tuple[str, str, bool]:
    """Source, destination, and whether nothing may be written there."""
    found = _BIND.fullmatch(bind)
    if not found:
        raise ValueError(f"{bind!r} cannot be bound into a container: paths must be whole, without colons and commas")
    return found[1], found[2] or found[1], bool(found[3])
