"""Settings of a run's model, text and training."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from hpcbench.contract.experts import Experts
from hpcbench.contract.section import Count, Feature, File, Misfit, Name, Precision, Section
from hpcbench.features.effects.settings import CodecEffects
from hpcbench.features.messages.settings import MessageSamples
from hpcbench.features.prune.settings import Setting as PruneSetting
from hpcbench.features.trace.settings import Trace

Optimizer = Literal["adamw", "onebit-adam"]
MessageFormat = Literal["auto", "fp32", "bf16", "fp16"]
Transport = Literal["mpi", "nccl"]
SparseGradients = Literal["never", "auto", "measured", "always"]
ScheduleName = Literal["gpipe", "1f1b", "interleaved", "pipedream", "pipedream-2bw"]
Activation = Literal["gelu", "squared-relu", "swiglu"]
Norm = Literal["layernorm", "rmsnorm"]
SyncName = Literal["all-reduce", "bsp", "ssp", "asp"]
UNFLUSHED: tuple[ScheduleName, ...] = ("pipedream", "pipedream-2bw")
"""Pipeline schedules without a flush between steps."""


class Model(Section):
    """A decoder-only transformer. The defaults are the architecture of GPT-NeoX."""

    name: Name = Field("custom", description="Name of the model in tables; by default the name of the preset.")
    layers: Count = Field(description="Number of transformer layers.")
    hidden: Count = Field(description="Width of the residual stream.")
    heads: Count = Field(description="Number of attention heads; it must divide hidden.")
    kv_heads: Count | None = Field(
        None,
        description="Number of heads of keys and values (grouped-query attention); it must divide heads, which is the "
        "default.",
    )
    mlp_width: Count | None = Field(None, description="Width of the MLP's middle; 4 x hidden by default.")
    activation: Activation = Field(
        "gelu",
        description="Activation of the MLP. swiglu is a gated MLP with three matrices instead of two: "
        "silu(gate) x up, then down.",
    )
    norm: Norm = Field("layernorm", description="Kind of the norms. rmsnorm has no bias and subtracts no mean.")
    bias: bool = Field(True, description="Biases of the linear layers of attention and MLPs.")
    vocab: int = Field(
        256, ge=256, le=10**9, description="Vocabulary size. Text without a tokenizer is bytes, so it is at least 256."
    )
    positions: Literal["rotary", "learned"] = Field("rotary", description="How the model encodes positions.")
    rotary_fraction: float = Field(
        1.0, ge=0, le=1, description="Fraction of each head's dimensions that rotary positions rotate."
    )
    rotary_base: float = Field(10000.0, gt=1, description="Base of the wavelengths of rotary positions.")
    parallel_residual: bool = Field(
        True, description="Attention and MLP run in parallel on the same input, as in GPT-J."
    )
    tied: bool = Field(False, description="Share one weight between the embedding and the head.")
    experts: Experts | None = Field(
        None, description="Mixture of experts instead of MLPs, such as `{count: 8, top: 2}`; none by default."
    )

    @property
    def head_dim(self) -> int:
        """Number of features per attention head."""
        return self.hidden // self.heads

    @property
    def groups(self) -> int:
        """Number of key and value heads."""
        return self.kv_heads or self.heads

    @property
    def qkv_width(self) -> int:
        """Total number of features of queries, keys and values."""
        return (self.heads + 2 * self.groups) * self.head_dim

    @property
    def gated(self) -> bool:
        """Whether the MLPs have a gate, so that the first layer's output is twice as wide as the hidden layer."""
        return self.activation == "swiglu"

    @property
    def middle(self) -> int:
        """Width of the MLP's hidden layer, after the activation."""
        return self.mlp_width or 4 * self.hidden

    @property
    def expert_middle(self) -> int:
        """Width of an expert's hidden layer."""
        return (self.experts.width if self.experts else None) or self.middle

    @property
    def shared_middle(self) -> int:
        """Width of the shared expert's hidden layer."""
        return (self.experts.shared_width if self.experts else None) or self.expert_middle

    @property
    def layer_weights(self) -> int:
        """Number of elements in the matrices of a layer without experts."""
        return self.hidden * (self.qkv_width + self.hidden + (3 if self.gated else 2) * self.middle)

    @property
    def expert_layers(self) -> list[int]:
        """The layers, counted from 0, that have experts."""
        return self.experts.layers_of(range(self.layers)) if self.experts else []


class Data(Section):
    """The training and validation text."""

    source: Literal["stdlib", "file", "megatron", "numpy"] = Field(
        "stdlib",
        description="Python's standard library, a text file, a .bin and .idx pair of Megatron-LM, or token IDs.",
    )
    path: File | None = Field(
        None,
        description="The file, relative to the study file. A pair is named without its ending, or by one of its files.",
    )
    valid_fraction: float = Field(
        0.1, gt=0, lt=1, description="Fraction of the text used for validation; of token files, the last part."
    )
    tokenizer: File | None = Field(
        None,
        description="A tokenizer.json of the library tokenizers, relative to the study file; without it text is bytes.",
    )
    dtype: Literal["uint16", "int32"] | None = Field(
        None, description="Number format of the tokens in a file other than .npy; uint16 by default."
    )

    samples: Count | None = Field(
        None,
        description="Number of different training samples, after which the same samples recur; by default none recurs.",
    )

    @model_validator(mode="after")
    def _path_with_file(self) -> "Data":
        if (self.path is None) != (self.source == "stdlib"):
            raise ValueError(
                "path does not fit source: leave path out for `source: stdlib`, and set it for `source: file`, "
                "megatron or numpy"
            )
        return self

    @model_validator(mode="after")
    def _settings_of_the_source(self) -> "Data":
        if self.tokenizer is not None and self.source not in ("stdlib", "file"):
            raise ValueError(f"tokenizer is for text, but `source: {self.source}` contains tokens: leave tokenizer out")
        if self.dtype is not None and (self.source != "numpy" or str(self.path).endswith(".npy")):
            raise ValueError("dtype is for `source: numpy` with a file of bare numbers: leave dtype out")
        return self


class CommPrecision(Section):
    """Number format of messages, keyed by content. `auto` means `train.precision`."""

    activations: MessageFormat = Field("auto", description="Activations and their gradients: TP, SP, CP, EP and PP.")
    gradients: MessageFormat = Field("auto", description="Gradients of the weights; Megatron-LM uses fp32.")
    parameters: MessageFormat = Field("auto", description="Weights that ZeRO gathers.")


CONTENTS = tuple(CommPrecision.model_fields)
"""Kinds of message content whose number format can be set. `activations` includes the gradients of activations."""


def _by_content(value: Any) -> Any:
    """Expand a single format to a mapping that assigns this format to all kinds of content."""
    if not isinstance(value, str):
        return value
    if value == "megatron":
        return {"gradients": "fp32"}
    if value not in get_args(MessageFormat):
        raise ValueError(
            f"{value!r} is not a number format: use {', '.join(get_args(MessageFormat))}, megatron, or a mapping of "
            f"{', '.join(CONTENTS[:-1])} and {CONTENTS[-1]}"
        )
    return dict.fromkeys(CONTENTS, value)


class Train(Section):
    """Steps, batches, precision and optimizer of a run."""

    steps: Count = Field(description="Optimizer steps of a run.")
    warmup_steps: int = Field(
        10,
        ge=0,
        description="Steps in which the learning rate rises; throughput is counted only after them.",
    )
    global_batch: Count = Field(description="Samples per step, over all ranks; a multiple of micro_batch x dp.")
    micro_batch: Count = Field(1, description="Samples that a rank processes at a time.")
    seq_len: Count = Field(2048, description="Tokens per sample.")
    precision: Precision = Field("fp32", description="Number format of weights and activations.")
    comm_precision: Annotated[
        CommPrecision,
        BeforeValidator(_by_content, json_schema_input_type=MessageFormat | Literal["megatron"] | CommPrecision),
    ] = Field(
        CommPrecision(),
        description="Number format of messages: one for all, or one each for activations, gradients and parameters. "
        "auto: the dtype of precision, as in GPT-NeoX and DeepSpeed; megatron: auto, but gradients in fp32. "
        "Collectives of hpcbench sum in fp32 or better and round once; the MPI library's own sum in "
        "the message's format.",
    )
    zero: Literal[0, 1, 2, 3] = Field(
        1,
        description="ZeRO stage: 1 shards the optimizer states over dp, 2 also the gradients, 3 also the parameters.",
    )
    seed: int = Field(1234, ge=0, lt=2**31, description="Seed of repeat 1; repeat k takes seed + k - 1.")
    lr: float = Field(1e-3, gt=0, description="Peak learning rate.")
    min_lr: float | None = Field(None, ge=0, description="Learning rate at the last step; a tenth of lr by default.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of Adam's first moment.")
    beta2: float = Field(0.95, ge=0, lt=1, description="Decay of Adam's second moment.")
    eps: float = Field(1e-8, gt=0, description="Term in the denominator of Adam that prevents division by zero.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay.")
    clip: float = Field(
        1.0, ge=0, description="Maximum global gradient norm; 0 disables clipping, which 1-bit Adam requires."
    )
    bucket_mb: float = Field(4.0, gt=0, description="Size of the gradient buckets in MB (10^6 bytes).")
    sparse_gradients: SparseGradients = Field(
        "never",
        description="Send only the rows of the embedding's gradient that a replica's tokens touched, with their "
        "indices: always; auto: when this is fewer bytes than the whole gradient; measured: when it is faster "
        "according to a measurement before the first step. Embedding and head must not be tied.",
    )
    overlap: bool = Field(True, description="Reduce gradients during the backward pass.")
    eval_every: int = Field(0, ge=0, description="Steps between evaluations; 0 evaluates at the end only.")
    eval_samples: Count = Field(32, description="Samples per evaluation.")
    checkpoint_every: int = Field(
        0, ge=0, description="Steps between checkpoints; 0 writes one only when the run is asked to stop early."
    )
    schedule: ScheduleName = Field(
        "1f1b",
        description="Pipeline schedule; interleaved needs layout.chunks of 2 or more. pipedream and pipedream-2bw "
        "never flush the pipeline, so they compute gradients with older weights.",
    )
    vertical_sync: bool = Field(
        False,
        description="For schedule pipedream: every stage uses the version of the weights that was the newest when the "
        "micro-batch entered the pipeline, not the newest of the stage.",
    )
    sync: SyncName = Field(
        "all-reduce",
        description="How replicas synchronize: by collectives (all-reduce), or by a parameter server that is "
        "sharded over them. bsp waits for all replicas in each step, ssp lets a replica be `staleness` steps ahead "
        "of the slowest, asp never waits.",
    )
    staleness: int = Field(
        0, ge=0, description="For sync ssp: number of gradients that a replica may be ahead of the slowest one."
    )
    slow_factor: float = Field(
        1.0,
        ge=1,
        le=1000,
        description="Factor that lengthens the passes of rank `slow_rank`, to measure the cost of waiting for a slow "
        "rank. Only for layouts without a pipeline.",
    )
    slow_rank: int = Field(0, ge=0, description="Rank that slow_factor slows down.")
    recompute: Literal["none", "selective", "full"] | Count = Field(
        "none",
        description="Activations that the backward pass recomputes: none, selective (the attention core), full (each "
        "layer), or a number n (groups of n layers).",
    )
    sequence_parallel: bool = Field(
        False,
        description="Shard the activations between tensor-parallel layers by sequence position; tp must divide "
        "seq_len.",
    )
    transport: Transport | None = Field(
        None,
        description="Library that carries gradients, activations and parameters: mpi, or nccl between GPUs. By default "
        "that of the site. MPI starts the ranks and carries values in host memory in any case.",
    )
    offload: bool = Field(
        False, description="ZeRO-Offload: keep the optimizer states in host memory and update the weights there."
    )
    node_copy: bool = Field(
        False,
        description="ZeRO++ (hpZ), for zero 3: keep a second copy of the parameters within each node. The backward "
        "pass gathers from it.",
    )
    optimizer: Optimizer = Field(
        "adamw",
        description="Optimizer. onebit-adam averages momenta instead of gradients after freeze_step updates; it needs "
        "zero 0 and clip 0.",
    )
    freeze_step: Count | None = Field(
        None,
        description="Updates before 1-bit Adam freezes its variance; by default a fifth of steps, or warmup_steps.",
    )
    loss_scale: float = Field(4096.0, ge=1, description="Initial loss scale of fp16; other precisions have none.")
    loss_scale_window: Count = Field(1000, description="Steps without an overflow after which the scale doubles.")
    loss_scale_hysteresis: Count = Field(
        2, description="Number of overflows after which the scale is halved; each doubling resets the count."
    )
    prune: PruneSetting = Field(
        None,
        description="Sparse weights: `{pattern: unstructured, sparsity: 0.8, begin: 100, end: 500, every: 50}`, or a "
        "pattern alone; none by default.",
    )
    trace: Trace | None = Field(
        None,
        description="Record a trace of some steps on each rank: `{steps: [20, 25]}`. "
        "`hpcbench report --trace DIR` merges the ranks.",
    )
    keep_messages: MessageSamples | None = Field(
        None,
        description="Save samples of the messages of some steps, before any codec: `{steps: [20, 60], each: 2}`. "
        "`benchmarks/messages.py` of the repository measures codecs on them.",
    )
    codec_effects: CodecEffects | None = Field(
        None,
        description="Repeat some steps with codecs, and measure the change of the loss and of the weight update: "
        "`{steps: [20, 60], codecs: [int8:256, zfp:8]}`.",
    )

    @model_validator(mode="after")
    def _steps_beyond_warmup(self) -> "Train":
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} leaves none of {self.steps} steps to measure: lower warmup_steps"
            )
        if self.min_lr is not None and self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above lr {self.lr}: lower min_lr")
        if self.node_copy and self.zero != 3:
            raise ValueError(
                f"node_copy is a second copy of the pieces of ZeRO stage 3, but zero is {self.zero}: set zero to 3"
            )
        for section in vars(self).values():
            problem = isinstance(section, Feature) and section.problem(steps=self.steps, warmup_steps=self.warmup_steps)
            if problem:
                raise ValueError(problem)
        return self

    @property
    def lowest_lr(self) -> float:
        """Learning rate at the end of the schedule."""
        return self.lr / 10 if self.min_lr is None else self.min_lr

    @property
    def sum_format(self) -> Precision:
        """Number format in which sums are accumulated."""
        return "fp64" if self.precision == "fp64" else "fp32"

    @property
    def message_formats(self) -> dict[str, Precision]:
        """Number format of messages, keyed by content (see `CONTENTS`)."""
        return {content: self.precision if name == "auto" else name for content, name in self.comm_precision}


def find_optimizer_misfit(train: Train) -> Misfit | None:
    """Return why the optimizer does not work with these settings, or None if it does.

    Parameters
    ----------
    train
        Final settings, which include the optimizer of the scheme and the `freeze_step` of 1-bit Adam.
    """
    if train.optimizer != "onebit-adam":
        if train.freeze_step is None:
            return None
        return Misfit(
            ("train", "freeze_step"), f"{train.optimizer} does not freeze its variance: leave freeze_step out"
        )
    if train.prune is not None:
        return Misfit(
            ("train", "prune"),
            "1-bit Adam averages momenta of all weights: leave prune out, or train with another optimizer",
        )
    if train.codec_effects is not None:
        return Misfit(
            ("train", "codec_effects"),
            "1-bit Adam averages momenta, which repeated steps would change: leave codec_effects out, or train with "
            "another optimizer",
        )
    if train.sync != "all-reduce":
        return Misfit(
            ("train", "sync"),
            f"{train.sync} supports adamw, but not 1-bit Adam: use sync all-reduce, or another optimizer",
        )
    if train.schedule in UNFLUSHED:
        return Misfit(
            ("train", "schedule"),
            f"{train.schedule} supports adamw, but not 1-bit Adam: use schedule 1f1b, or another optimizer",
        )
    if train.zero:
        return Misfit(
            ("train", "zero"),
            f"1-bit Adam averages whole momenta, but ZeRO stage {train.zero} shards them: set zero to 0, or train with "
            "another optimizer",
        )
    if train.offload:
        return Misfit(
            ("train", "offload"),
            "1-bit Adam averages momenta on the device: set offload to false, or train with another optimizer",
        )
    if train.freeze_step is None:
        return Misfit(
            ("train", "freeze_step"), "1-bit Adam freezes its variance at this step: set freeze_step to 1 or more"
        )
    if train.freeze_step >= train.steps:
        return Misfit(
            ("train", "freeze_step"),
            f"a variance that is frozen after {train.freeze_step} updates leaves none of {train.steps} steps to "
            "average momenta in: lower freeze_step",
        )
    if train.clip:
        return Misfit(
            ("train", "clip"),
            "clipping needs the norm of the mean gradient, which no rank has once 1-bit Adam averages momenta: set "
            "clip to 0 for all schemes that are compared, or train with another optimizer",
        )
    return None
