"""What a study may say: one schema for files, `--set` and editors."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hpcbench.codecs import spec
from hpcbench.comm.rules import matches, possible
from hpcbench.study.section import Count, File, Label, Line, Name, Precision, Scalar, Section, Variable
from hpcbench.study.thresholds import Threshold


def check_codec(name: str) -> str:
    """The codec's canonical name.

    Raises
    ------
    ValueError
        There is no such codec.
    """
    return spec.parse(name).name


_FIXED = (
    (
        r"PATH|LD_.*|PYTHON.*|VIRTUAL_ENV|BASH_ENV|ENV",
        "changes which programs and libraries run, not how they communicate",
    ),
    (r"HPCBENCH_.*", "is hpcbench's own"),
    (r"OMP_.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES", "follows from the site and the layout"),
)
"""Variables that all runs of a comparison must have in common, and why."""


def check_environment(environment: dict[str, str]) -> dict[str, str]:
    """Variables that a scheme may set.

    Raises
    ------
    ValueError
        One of them would change more than the communication.
    """
    for name in environment:
        for pattern, reason in _FIXED:
            if re.fullmatch(pattern, name):
                raise ValueError(f"{name} {reason}: if all runs need it, set it in the site file")
    return environment


class Model(Section):
    """A GPT in the manner of GPT-NeoX."""

    name: Name = Field("custom", description="What tables call the model; a preset's name by default.")
    layers: Count = Field(description="Transformer layers.")
    hidden: Count = Field(description="Width of the residual stream.")
    heads: Count = Field(description="Attention heads; must divide hidden.")
    vocab: int = Field(256, ge=256, le=10**9, description="Rows of the embedding; the text is bytes, so 256 or more.")
    positions: Literal["rotary", "learned"] = Field("rotary", description="How positions are told.")
    rotary_fraction: float = Field(1.0, ge=0, le=1, description="Part of each head that is rotated.")
    parallel_residual: bool = Field(True, description="Attention and MLP read the same input, as in GPT-J.")
    tied: bool = Field(False, description="The head shares the embedding's weight.")


Optimizer = Literal["adamw", "onebit-adam"]


class Data(Section):
    """The text that is trained on."""

    source: Literal["stdlib", "file", "megatron", "numpy"] = Field(
        "stdlib",
        description="Python's standard library, a text file, a .bin and .idx pair of Megatron-LM, or token numbers.",
    )
    path: File | None = Field(
        None, description="The file, relative to the study file; of a pair without its ending, or either of the two."
    )
    valid_fraction: float = Field(
        0.1, gt=0, lt=1, description="Part of the text that is kept for evaluation; of token numbers the last."
    )
    tokenizer: File | None = Field(
        None,
        description="A tokenizer.json of the library tokenizers, relative to the study file; without it text is bytes.",
    )
    dtype: Literal["uint16", "int32"] | None = Field(
        None, description="Of token numbers in a file that is no .npy; uint16 by default."
    )

    @model_validator(mode="after")
    def _path_with_file(self) -> "Data":
        if (self.path is None) != (self.source == "stdlib"):
            raise ValueError(
                "path and source disagree: `source: stdlib` takes no path, `source: file`, megatron and numpy need one"
            )
        return self

    @model_validator(mode="after")
    def _settings_of_the_source(self) -> "Data":
        if self.tokenizer is not None and self.source not in ("stdlib", "file"):
            raise ValueError(f"tokenizer is for text, and `source: {self.source}` holds tokens: leave it out")
        if self.dtype is not None and (self.source != "numpy" or str(self.path).endswith(".npy")):
            raise ValueError("dtype is for `source: numpy` with a file of bare numbers: others say it: leave it out")
        return self


class Train(Section):
    """Steps, batches, precision and optimizer of a run."""

    steps: Count = Field(description="Optimizer steps of a run.")
    warmup_steps: int = Field(
        10,
        ge=0,
        description="Steps in which the learning rate rises; throughput is counted only after them.",
    )
    global_batch: Count = Field(description="Samples a step over all ranks; a multiple of micro_batch x dp.")
    micro_batch: Count = Field(1, description="Samples that a rank works on at a time.")
    seq_len: Count = Field(2048, description="Tokens a sample.")
    precision: Precision = Field("fp32", description="Of weights and activations.")
    comm_precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="Of messages; auto: fp32, or fp64 with precision fp64. Sums are made in fp32 or better. With bf16 "
        "and fp16, which MPI libraries do not sum, algorithms native and auto become encoded.",
    )
    zero: Literal[0, 1, 2, 3] = Field(
        1,
        description="ZeRO stage: 1 spreads the optimizer's states over dp, 2 the gradients too, 3 the parameters too.",
    )
    seed: int = Field(1234, ge=0, lt=2**31, description="Of repeat 1; repeat k takes seed + k - 1 in every scheme.")
    lr: float = Field(1e-3, gt=0, description="Highest learning rate.")
    min_lr: float | None = Field(None, ge=0, description="Learning rate at the end; a tenth of lr by default.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's first moment.")
    beta2: float = Field(0.95, ge=0, lt=1, description="Adam's second moment.")
    eps: float = Field(1e-8, gt=0, description="Adam's guard against a division by zero.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay.")
    clip: float = Field(1.0, ge=0, description="Largest global gradient norm; 0 does not clip.")
    bucket_mb: float = Field(4.0, gt=0, description="Size of the gradient buckets in MB (10^6 bytes).")
    overlap: bool = Field(True, description="Reduce gradients while the backward pass goes on.")
    eval_every: int = Field(0, ge=0, description="Steps between evaluations; 0 evaluates at the end only.")
    eval_samples: Count = Field(32, description="Samples an evaluation.")
    checkpoint_every: int = Field(
        0, ge=0, description="Steps between checkpoints; 0 writes one only when a run is told to stop before its end."
    )
    schedule: Literal["gpipe", "1f1b", "interleaved"] = Field(
        "1f1b", description="Order of the pipeline's work; interleaved goes with layout.chunks of 2 or more."
    )
    recompute: Literal["none", "selective", "full"] | Count = Field(
        "none",
        description="Activations that the backward pass computes again: none, those of the attention core (selective), "
        "of each layer (full), or of so many layers at a time.",
    )
    sequence_parallel: bool = Field(
        False,
        description="Split what lies between tensor-parallel layers by positions; tp must divide seq_len.",
    )
    offload: bool = Field(
        False, description="ZeRO-Offload: keep the optimizer's states with the host, and update the weights there."
    )
    node_copy: bool = Field(
        False,
        description="ZeRO++ (hpZ), for zero 3: a second copy of the parameters within each node, from which the "
        "backward pass gathers.",
    )
    optimizer: Optimizer = Field(
        "adamw",
        description="onebit-adam averages momenta, not gradients, after freeze_step updates; zero 0 only.",
    )
    freeze_step: Count | None = Field(
        None,
        description="Updates before 1-bit Adam freezes its variance; by default a fifth of steps, or warmup_steps.",
    )
    loss_scale: float = Field(4096.0, ge=1, description="First loss scale of fp16; other precisions have none.")
    loss_scale_window: Count = Field(1000, description="Steps without an overflow after which it doubles.")
    loss_scale_hysteresis: Count = Field(2, description="It halves from the so manieth overflow on.")

    @model_validator(mode="after")
    def _steps_beyond_warmup(self) -> "Train":
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} leaves none of {self.steps} steps to measure: lower it")
        if self.min_lr is not None and self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above lr {self.lr}: lower it")
        if self.node_copy and self.zero != 3:
            raise ValueError(f"node_copy is a second copy of stage 3's pieces, and zero is {self.zero}: set zero to 3")
        return self


class Layout(Section):
    """Sizes of the parallel dimensions; their product is the number of ranks."""

    dp: Count | None = Field(None, description="Data parallel; by default what nodes and the site leave room for.")
    tp: Count = Field(1, description="Tensor parallel; must divide model.heads.")
    pp: Count = Field(1, description="Pipeline stages; at most model.layers.")
    chunks: Count = Field(
        1, description="Parts of the model that each pipeline stage holds, for train.schedule interleaved."
    )
    stages: list[Count] = Field(
        default_factory=list,
        description="Layers of each of the pp x chunks parts, first to last; by default as even as possible. The head "
        "weighs as much as vocab / (12 hidden) layers of the last part, the embedding next to nothing.",
    )


class Rule(Section):
    """A codec for the traffic that matches; what is left out matches everything."""

    dimension: Literal["DP", "ZERO", "TP", "SP", "PP"] | None = Field(
        None,
        description="DP: gradients; ZERO: gathered parameters; TP: tensor parallel, and what train.sequence_parallel "
        "makes of it, unless a later rule is for SP; PP: between stages.",
    )
    phase: Literal["FORWARD", "BACKWARD", "STEP"] | None = Field(None, description="When it is sent.")
    kind: Literal["GRAD", "ACT", "PARAM", "OPTIM"] | None = Field(
        None, description="What is sent; OPTIM: momenta of 1-bit Adam."
    )
    codec: str = Field(description=f"One of {spec.KNOWN}.")
    feedback: bool = Field(
        False,
        description="Add what each message lacks to the next one; for gradients and momenta (dimension DP) only.",
    )

    min_bytes: int = Field(
        0,
        ge=0,
        le=2**40,
        description="Messages of fewer bytes, before the codec, travel as they are; of a collective its whole vector.",
    )
    between_nodes: bool = Field(
        False,
        description="Encode only what crosses nodes: collectives go by algorithm hierarchical, and what stays within a "
        "node travels as it is.",
    )

    _codec = field_validator("codec")(check_codec)

    @model_validator(mode="after")
    def _is_for_something(self) -> "Rule":
        if not any(matches(self, triple) for triple in possible()):
            near = [triple for triple in possible() if self.dimension in (None, triple[0])]
            raise ValueError(
                f"there is no such traffic in any run: {'of ' + self.dimension if self.dimension else 'there'} are "
                f"{', '.join(' '.join(triple) for triple in near)}"
            )
        return self

    @model_validator(mode="after")
    def _limits_are_of_a_codec(self) -> "Rule":
        if self.codec == "none" and (self.min_bytes or self.between_nodes):
            raise ValueError(
                "min_bytes and between_nodes say when a codec runs, and codec none is none: leave them out"
            )
        return self

    @model_validator(mode="after")
    def _feedback_needs_a_sum(self) -> "Rule":
        if self.feedback and self.dimension != "DP":
            raise ValueError("feedback is for the reduction of gradients: write dimension: DP beside it")
        return self


class Scheme(Section):
    """Which codec on which traffic: the last rule that matches applies."""

    algorithm: Literal[
        "encoded",
        "auto",
        "native",
        "two-shot",
        "hierarchical",
        "hierarchical-encoded",
        "ring",
        "doubling",
        "homomorphic",
    ] = Field(
        "encoded",
        description="encoded: the fastest of our own; auto: the same, or the MPI library's where a codec would lose "
        "time; native: the MPI library's, without codecs; the others: one of our own, where it can do what is asked.",
    )
    default: str = Field("none", description=f"Codec where no rule matches: one of {spec.KNOWN}.")
    rules: list[Rule] = Field(default_factory=list, description="Exceptions to the default.")
    environment: dict[Variable, Line] = Field(
        default_factory=dict,
        description="Variables of this scheme's runs alone, taken literally: for MPI libraries that compress by "
        "themselves. What such a library sends is not known to hpcbench.",
    )
    optimizer: Optimizer | None = Field(
        None, description="What this scheme's runs train with, in place of train.optimizer."
    )
    description: Line | None = Field(None, description="For people.")

    _default = field_validator("default")(check_codec)
    _environment = field_validator("environment")(check_environment)

    @model_validator(mode="after")
    def _native_is_plain(self) -> "Scheme":
        codecs = {self.default, *(rule.codec for rule in self.rules)}
        if self.algorithm == "native" and codecs != {"none"}:
            raise ValueError("algorithm native runs no codec: use encoded, or the codec none")
        return self

    @model_validator(mode="after")
    def _environment_says_whose_collectives(self) -> "Scheme":
        if self.environment and "algorithm" not in self.model_fields_set:
            raise ValueError("environment needs algorithm beside it: native, for the MPI library's own collectives")
        return self


class Matrix(BaseModel):
    """What varies: each key names a field of the study, with a list of values; the last key varies fastest."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, list[Scalar]]

    zip: list[dict[str, list[Scalar]]] = Field(
        default_factory=list, description="Groups of keys whose lists, of equal length, go in lockstep."
    )
    exclude: list[dict[str, Scalar]] = Field(
        default_factory=list, description="Cells to leave out: each matches on the keys that it names."
    )


class Baseline(Section):
    """The runs that all others are compared with."""

    scheme: Name = Field("baseline", description="Their scheme.")


class Criteria(Section):
    """Margins of a verdict."""

    speed_margin: float = Field(
        0.01, ge=0, lt=1, description="A scheme is not faster when it is shown to gain less than this part."
    )
    loss_margin: float = Field(
        0.01,
        ge=0,
        description="A loss is as good when it is shown to differ from the baseline's by less than this part.",
    )


class Study(Section):
    """What to compare: a model, how it trains, and what varies."""

    study: Name = Field(description="Name: letters, digits, dot, underscore and dash, at most 64.")
    site: File | None = Field(None, description="Name of a site, or a site file.")
    description: str | None = Field(None, description="For people.")
    account: Label | None = Field(None, description="Bank or project that the scheduler charges.")
    queue: Label | None = Field(None, description="Queue of the site; the site's first by default.")
    walltime: str | None = Field(None, description="Limit of a job, such as 90m or 1h30m; the site's by default.")
    run_limit: str | None = Field(
        None, description="Limit of a run; by default an equal part of what its job has left."
    )
    requeue: int = Field(
        0, ge=0, le=100, description="How often a job that is preempted or meets its limit goes back to its queue."
    )
    stop_ahead: str = Field(
        "2m", description="How long before its limit a job tells a run to write its checkpoint and stop."
    )
    after: File | None = Field(
        None, description="Submission, or study by its name, whose jobs must have completed before these."
    )
    model: Model = Field(description="A preset's name, or the fields; `preset` in the fields starts from one.")
    data: Data = Field(default_factory=Data, description="The text.")
    train: Train = Field(description="How each run trains.")
    layout: Layout = Field(default_factory=Layout, description="Sizes of the parallel dimensions.")
    nodes: Count | None = Field(None, description="Nodes of a job; by default what the layout needs.")
    ranks_per_node: Count | None = Field(None, description="Ranks a node; by default the GPUs of a node.")
    scheme: Name = Field("baseline", description="The scheme, where the matrix does not vary it.")
    links: File | None = Field(
        None,
        description="What `hpcbench bench network --json` measured here, relative to the study file: decides on plans.",
    )
    schemes: dict[Name, Scheme] = Field(default_factory=dict, description="Schemes of one's own, by name.")
    matrix: Matrix = Field(default_factory=Matrix, description="What varies.")
    repeats: int = Field(3, ge=1, le=1000, description="Runs of each cell, with seeds of their own.")
    pairing: Literal["allocation", "none"] = Field(
        "allocation",
        description="allocation: the schemes of a repeat share a job, in rotated order; none: one job a run.",
    )
    baseline: Baseline = Field(default_factory=Baseline, description="What all others are compared with.")
    criteria: Criteria = Field(default_factory=Criteria, description="What a verdict calls a difference.")
    thresholds: list[Threshold] = Field(
        default_factory=list,
        max_length=1000,
        description="Bounds that runs must keep; `report` says which are broken.",
    )


def json_schema() -> dict[str, Any]:
    """JSON Schema of a study file, for editors."""
    schema = Study.model_json_schema()
    preset = {"type": "object", "required": ["preset"], "properties": {"preset": {"type": "string"}}}
    model = schema["properties"]["model"]
    schema["properties"]["model"] = {
        "description": model["description"],
        "anyOf": [{"type": "string"}, {"$ref": "#/$defs/Model"}, preset],
    }
    zip_ = schema["$defs"]["Matrix"]["properties"]["zip"]
    zip_["anyOf"] = [zip_["items"], {"type": zip_.pop("type"), "items": zip_.pop("items")}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
