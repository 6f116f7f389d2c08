"""Study schema for files, `--set`, and editors."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hpcbench.contract.criteria import Criteria, QuantityBound
from hpcbench.contract.layout import Partition
from hpcbench.contract.program import Program
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Count, File, Label, Line, MailAddress, Name, Scalar, Section
from hpcbench.contract.training import Data, Model, Train
from hpcbench.study.container import Container
from hpcbench.study.systems import add_system


class _Replicas(Section):
    """Size that a study may omit. `StudyLayout` has this class as second base, so the size comes first in files."""

    dp: Count | None = Field(None, description="Data-parallel size; by default it follows from the nodes and the site.")


class StudyLayout(Partition, _Replicas):
    """Sizes of the parallel dimensions, whose product is the number of ranks."""


class SchemeEntry(Scheme):
    """A scheme defined by a study or site."""

    description: Line | None = Field(None, description="Short description.")
    system: Name | None = Field(
        None, description="Another compression system, whose fields this scheme completes: see `hpcbench schemes`."
    )

    @model_validator(mode="before")
    @classmethod
    def _add_system(cls, data: Any) -> Any:
        return add_system(data) if isinstance(data, dict) else data


class Matrix(BaseModel):
    """The values that vary.

    Each key is a study field with a list of values. The last key varies fastest.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, list[Scalar]]

    zip: list[dict[str, list[Scalar]]] = Field(
        default_factory=list, description="Groups of keys whose lists have equal length and vary together."
    )
    exclude: list[dict[str, Scalar]] = Field(
        default_factory=list, description="Cells to leave out. Each entry matches the cells with its values."
    )


class Baseline(Section):
    """The baseline with which all other runs are compared."""

    scheme: Name = Field("baseline", description="Scheme of the baseline.")


class _Shared(Section):
    """Fields common to all studies: matrix, job limits, and comparison of runs."""

    study: Name = Field(description="Name: letters, digits, dot, underscore and dash, at most 64.")
    site: File | None = Field(None, description="Name of a site, or a site file.")
    description: str | None = Field(None, description="Description.")
    account: Label | None = Field(None, description="Account, bank or project that the scheduler charges.")
    queue: Label | None = Field(None, description="Queue of the site; the site's first by default.")
    walltime: str | None = Field(None, description="Walltime of a job, such as 90m or 1h30m; the site's by default.")
    run_limit: str | None = Field(
        None,
        description="Limit of a run, at which it writes its checkpoint and stops; by default an equal part of the "
        "remaining time of its job.",
    )
    requeue: int = Field(
        0,
        ge=0,
        le=100,
        description="Number of times that a job is requeued after a preemption, or at its limit or the limit of a run.",
    )
    stop_ahead: str = Field(
        "2m",
        description="Time before the limit of a job at which its run is asked to write a checkpoint and stop. After "
        "its own limit, a run has the same time, but at most its limit if other runs wait.",
    )
    after: File | None = Field(
        None, description="Submission, or name of a study, whose jobs must complete before these start."
    )
    notify: MailAddress | None = Field(
        None,
        description="Mail address, or name of a user, to which the scheduler writes when a job ends or fails: Slurm "
        "and LSF only.",
    )
    nodes: Count | None = Field(None, description="Nodes of a job; by default the number that the layout needs.")
    ranks_per_node: Count | None = Field(None, description="Ranks per node; by default the GPUs of a node.")
    scheme: Name = Field("baseline", description="The scheme, if the matrix does not vary it.")
    schemes: dict[Name, SchemeEntry] = Field(default_factory=dict, description="Schemes of the study, by name.")
    matrix: Matrix = Field(default_factory=Matrix, description="The values that vary.")
    repeats: int = Field(3, ge=1, le=1000, description="Runs of each cell and scheme, each with another seed.")
    pairing: Literal["allocation", "none"] = Field(
        "allocation",
        description="allocation: the schemes of a repeat share a job, in rotated order; none: one job per run.",
    )
    baseline: Baseline = Field(default_factory=Baseline, description="What all other runs are compared with.")
    criteria: Criteria = Field(default_factory=Criteria, description="Margins within which runs count as equal.")
    thresholds: list[QuantityBound] = Field(
        default_factory=list,
        max_length=1000,
        description="Bounds that runs must keep; `report` lists the violations.",
    )


class Study(_Shared):
    """A study of hpcbench's engine: a model, training settings, and the values that vary."""

    model: Model = Field(description="Name of a preset, or the fields; with `preset`, the fields change a preset.")
    data: Data = Field(default_factory=Data, description="The training text.")
    train: Train = Field(description="Training settings.")
    layout: StudyLayout = Field(default_factory=StudyLayout, description="Sizes of the parallel dimensions.")
    links: File | None = Field(
        None,
        description="File of `hpcbench bench network --output`, relative to the study file, for the choice of plans.",
    )
    container: Container | None = Field(
        None, description="The container of the ranks: the image, and settings that the site lacks."
    )

    @property
    def steps(self) -> int:
        """Number of steps of a run."""
        return self.train.steps


class ProgramStudy(_Shared):
    """A study of another program."""

    program: Program = Field(
        description="Another program that trains with PyTorch, instead of model, data, train and layout."
    )
    container: Container | None = Field(
        None, description="The container of the ranks: the image, and settings that the site lacks."
    )

    @property
    def steps(self) -> int:
        """Number of steps of a run."""
        return self.program.steps


AnyStudy = Study | ProgramStudy


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file, for editors."""
    schema, foreign = Study.model_json_schema(), ProgramStudy.model_json_schema()
    schema["properties"]["program"] = foreign["properties"]["program"]
    schema["$defs"] = {**foreign["$defs"], **schema["$defs"]}
    sections = [name for name in schema["required"] if name in ("model", "train")]
    schema["required"] = [name for name in schema["required"] if name not in sections]
    schema["oneOf"] = [{"required": sections}, {"required": ["program"]}]
    preset = {"type": "object", "required": ["preset"], "properties": {"preset": {"type": "string"}}}
    model = schema["properties"]["model"]
    schema["properties"]["model"] = {
        "description": model["description"],
        "anyOf": [{"type": "string"}, {"$ref": "#/$defs/Model"}, preset],
    }
    zip_ = schema["$defs"]["Matrix"]["properties"]["zip"]
    zip_["anyOf"] = [zip_["items"], {"type": zip_.pop("type"), "items": zip_.pop("items")}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
