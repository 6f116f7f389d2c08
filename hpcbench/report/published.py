"""What papers report, with where it was read: ``results/published/*.yaml``."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hpcbench.contract.problems import user_error
from hpcbench.contract.section import Section
from hpcbench.resources import data_dir
from hpcbench.study.yaml12 import read

Citation = Literal["first-hand", "second-hand", "derived"]
"""How a figure was read. first-hand: in the paper's own text, its authors' documentation or code; second-hand: in
somebody's account of it; derived: computed from first-hand figures."""


class Published(Section):
    """One figure of a paper."""

    what: str = Field(description="What was measured.")
    setting: str = Field(description="Model, machine, size.")
    quantity: Literal["speed_ratio", "flops_ratio", "tflops", "mfu", "wire_over_message", "mode_ratio"]
    value: float
    citation: Citation
    read_in: str = Field(description="Abstract, table, code: where the figure was read.")
    gpu: str | None = Field(None, description="Part of the name of the GPU that it is for.")
    schemes: list[str] = Field(default_factory=list, description="Patterns of the schemes to set beside it.")
    reference: str | None = Field(None, description="Of this figure, where it is not the paper's.")
    note: str | None = None

    def concerns(self, scheme: str) -> bool:
        """Whether a scheme of ours is of the kind that the figure is of."""
        return any(fnmatchcase(scheme, pattern) for pattern in self.schemes)


class Paper(Section):
    """A paper and its figures."""

    paper: str
    authors: str
    reference: str
    figures: list[Published] = Field(min_length=1)


def papers(directory: Path | None = None) -> list[Paper]:
    """All papers, in the order of their files' names.

    Raises
    ------
    UserError
        A file is not what it should be.
    """
    directory = directory or data_dir("results/published")
    return [_read(path) for path in sorted(directory.glob("*.yaml"))]


def _read(path: Path) -> Paper:
    document = read(path)
    try:
        return Paper.model_validate(document.data)
    except ValidationError as error:
        raise user_error(error, Paper, document.where) from None
