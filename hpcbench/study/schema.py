"""The schema of a study, for files, `--set` and editors."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hpcbench.contract.criteria import Criteria, QuantityBound
from hpcbench.contract.layout import Partition
from hpcbench.contract.program import Program
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Count, File, Label, Line, Name, Scalar, Section
from hpcbench.contract.training import Data, Model, Train
from hpcbench.study.container import Container
from hpcbench.study.systems import add_system


class _Replicas(Section):
    """The size that a study may leave out. The fields of a second base class come first in files."""

    dp: Count | None = Field(None, description="Data parallel; by default as many as nodes and the site have room for.")


class StudyLayout(Partition, _Replicas):
    """Sizes of the parallel dimensions; their product is the number of ranks."""


class SchemeEntry(Scheme):
    """A scheme in the form in which a study or a site writes it."""

    description: Line | None = Field(None, description="For people.")
    system: Name | None = Field(
        None, description="Another compression system, whose fields this scheme completes: see `hpcbench schemes`."
    )

    @model_validator(mode="before")
    @classmethod
    def _add_system(cls, data: Any) -> Any:
        return add_system(data) if isinstance(data, dict) else data


class Matrix(BaseModel):
    """The values that vary.

    Each key names a field of the study and has a list of values; the last key varies fastest.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, list[Scalar]]

    zip: list[dict[str, list[Scalar]]] = Field(
        default_factory=list, description="Groups of keys whose lists have equal length and vary together."
    )
    exclude: list[dict[str, Scalar]] = Field(
        default_factory=list, description="Cells to leave out: each matches on the keys that it names."
    )


class Baseline(Section):
    """The runs that all others are compared with."""

    scheme: Name = Field("baseline", description="Their scheme.")


class _Shared(Section):
    """What all studies have: the values that vary, and what is made of the runs."""

    study: Name = Field(description="Name: letters, digits, dot, underscore and dash, at most 64.")
    site: File | None = Field(None, description="Name of a site, or a site file.")
    description: str | None = Field(None, description="For people.")
    account: Label | None = Field(None, description="Bank or project that the scheduler charges.")
    queue: Label | None = Field(None, description="Queue of the site; the site's first by default.")
    walltime: str | None = Field(None, description="Limit of a job, such as 90m or 1h30m; the site's by default.")
    run_limit: str | None = Field(
        None,
        description="Limit of a run, at which it writes its checkpoint and stops; by default an equal part of what "
        "its job has left.",
    )
    requeue: int = Field(
        0,
        ge=0,
        le=100,
        description="How often a job goes back to its queue when it is preempted, or it or a run reaches its limit.",
    )
    stop_ahead: str = Field(
        "2m",
        description="How long before its limit a job tells a run to write its checkpoint and stop. At its own limit a "
        "run has this time for it, or as long as the limit if that is shorter and other runs wait.",
    )
    after: File | None = Field(
        None, description="Submission, or study by its name, whose jobs must have completed before these."
    )
    nodes: Count | None = Field(None, description="Nodes of a job; by default what the layout needs.")
    ranks_per_node: Count | None = Field(None, description="Ranks a node; by default the GPUs of a node.")
    scheme: Name = Field("baseline", description="The scheme, if the matrix does not vary it.")
    schemes: dict[Name, SchemeEntry] = Field(default_factory=dict, description="Schemes of one's own, by name.")
    matrix: Matrix = Field(default_factory=Matrix, description="What varies.")
    repeats: int = Field(3, ge=1, le=1000, description="Runs of each cell, with seeds of their own.")
    pairing: Literal["allocation", "none"] = Field(
        "allocation",
        description="allocation: the schemes of a repeat share a job, in rotated order; none: one job a run.",
    )
    baseline: Baseline = Field(
        default_factory=Baseline, description="The baseline, which all other runs are compared with."
    )
    criteria: Criteria = Field(
        default_factory=Criteria, description="Margins within which a verdict sees no difference."
    )
    thresholds: list[QuantityBound] = Field(
        default_factory=list,
        max_length=1000,
        description="Bounds that runs must keep; `report` says which are broken.",
    )


class Study(_Shared):
    """The runs to compare: a model, its training, and the values that vary."""

    model: Model = Field(description="A preset's name, or the fields; `preset` in the fields starts from one.")
    data: Data = Field(default_factory=Data, description="The text.")
    train: Train = Field(description="How each run trains.")
    layout: StudyLayout = Field(default_factory=StudyLayout, description="Sizes of the parallel dimensions.")
    links: File | None = Field(
        None,
        description="File of `hpcbench bench network --output`, relative to the study file; plans are chosen by it.",
    )
    container: Container | None = Field(None, description="The image that ranks run in, and what the site lacks of it.")

    @property
    def steps(self) -> int:
        """Number of steps of a run."""
        return self.train.steps


class ProgramStudy(_Shared):
    """The runs of a program of others to compare."""

    program: Program = Field(
        description="A program of others that trains with PyTorch, in place of model, data, train and layout."
    )
    container: Container | None = Field(None, description="The image that ranks run in, and what the site lacks of it.")

    @property
    def steps(self) -> int:
        """Number of steps of a run."""
        return self.program.steps


AnyStudy = Study | ProgramStudy


def json_schema() -> dict[str, Any]:
    """JSON Schema of a study file, for editors."""
    schema, foreign = Study.model_json_schema(), ProgramStudy.model_json_schema()
    schema["properties"]["program"] = foreign["properties"]["program"]
    schema["$defs"] = {**foreign["$defs"], **schema["$defs"]}
    own = [name for name in schema["required"] if name in ("model", "train")]
    schema["required"] = [name for name in schema["required"] if name not in own]
    schema["oneOf"] = [{"required": own}, {"required": ["program"]}]
    preset = {"type": "object", "required": ["preset"], "properties": {"preset": {"type": "string"}}}
    model = schema["properties"]["model"]
    schema["properties"]["model"] = {
        "description": model["description"],
        "anyOf": [{"type": "string"}, {"$ref": "#/$defs/Model"}, preset],
    }
    zip_ = schema["$defs"]["Matrix"]["properties"]["zip"]
    zip_["anyOf"] = [zip_["items"], {"type": zip_.pop("type"), "items": zip_.pop("items")}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
