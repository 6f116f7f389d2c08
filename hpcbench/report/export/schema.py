"""The tidy schema of what is exported: tables, columns, types, units. docs/reference/records.md shows it."""

import hashlib
from dataclasses import dataclass
from typing import Literal

VERSION = 3
"""Raised whenever a column is added, taken away, renamed, or changes its type, unit or place."""

Type = Literal["text", "json", "integer", "real"]
"""``json`` is text that holds a JSON value; ``integer`` has 64 bits, ``real`` is a double."""
Value = str | int | float | None
"""None: absent. NaN and infinity are values."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table: a row is a tuple of values in the order of its columns."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)


Row = tuple[Value, ...]

IDENTITY = (
    Column("schema_version", "integer", "", "Version of this schema"),
    Column("submission", "text", "", "Directory of the submission; absent for logs that were given one by one"),
    Column("study", "text", "", "Name of the study"),
    Column("site", "text", "", "Name of the site"),
    Column("dialect", "text", "", "Whose lines the log holds: hpcbench, or another framework"),
    Column("run", "text", "", "Id of the run; unique within its submission"),
    Column("job", "text", "", "Job that the run belongs to"),
    Column("scheme", "text", "", "Name of the scheme"),
    Column("repeat", "integer", "", "Number of the repeat, from 1; the seed grows with it"),
    Column("pairing", "text", "", "Runs of equal pairing and allocation are compared as pairs"),
    Column("cell", "json", "", "Values of the study's matrix, beside scheme and repeat, as an object"),
    Column("state", "text", "", "What became of the run: completed, failed, nan, timed out, ..."),
)
"""What every row begins with."""

QUANTITIES = (
    Column("loss", "real", "nat", "Mean training loss of the step, or loss of the evaluation"),
    Column("seconds", "real", "s", "Wall time of one step"),
    Column("samples_per_s", "real", "1/s", "Sequences a second, all ranks together"),
    Column("tokens_per_s", "real", "1/s", "Tokens a second, all ranks together, as the log gives it"),
    Column("tokens_per_s_per_rank", "real", "1/s", "Tokens a second of one rank, as the log gives it"),
    Column("model_flops_per_rank", "real", "FLOP/s", "What the model needs, recomputation not counted"),
    Column("hardware_flops_per_rank", "real", "FLOP/s", "What was executed"),
    Column("unlabelled_flops_per_rank", "real", "FLOP/s", "The log does not say whether recomputation counts"),
    Column("mfu", "real", "1", "Model FLOP/s over the chip's peak, as the log claims it"),
    Column("hfu", "real", "1", "Hardware FLOP/s over the chip's peak, as the log claims it"),
    Column("lr", "real", "1", "Learning rate"),
    Column("gradient_norm", "real", "1", "Global norm of the gradients before clipping"),
    Column("loss_scale", "real", "1", "Factor of the loss in fp16"),
    Column("message_bytes", "integer", "B", "Before the codec, summed over all ranks"),
    Column("wire_bytes", "integer", "B", "After the codec, summed over all ranks; absent where nobody knows"),
    Column("memory_bytes", "integer", "B", "Peak memory of the device of the rank that printed the line"),
    Column("samples", "integer", "1", "Sequences of the step"),
    Column("consumed_samples", "integer", "1", "Sequences since the run began"),
    Column("consumed_tokens", "integer", "1", "Tokens since the run began"),
    Column("skipped", "integer", "1", "Steps skipped so far for overflow"),
    Column("nan_steps", "integer", "1", "Steps so far whose loss was no number"),
)
"""All that a step's record may hold, by the names that it has there."""

_SOURCE = (
    Column("file", "text", "", "The log that the row was read from; the tables are joined by it"),
    Column("line", "integer", "1", "Line in it, from 1"),
)

RECORDS = Table(
    "records",
    "One row an observation: a step of a run, or an evaluation. A run's steps stand in the order of its log, its "
    "evaluations after them.",
    (
        *IDENTITY,
        Column("event", "text", "", "step or evaluation"),
        Column("split", "text", "", "Of an evaluation: which part of the data, such as valid"),
        Column("step", "integer", "1", "Number of the step, from 1; of an evaluation, the step it came after"),
        Column("steps", "integer", "1", "Steps that the run was to take"),
        *QUANTITIES,
        *_SOURCE,
    ),
)

RUNS = Table(
    "runs",
    "One row a run, also for those that left no log.",
    (
        *IDENTITY,
        Column("reason", "text", "", "Why it is in that state; absent where that needs no words"),
        Column("reason_source", "text", "", "File and line that say so"),
        Column("exit_status", "integer", "", "Of the launcher"),
        Column("started", "text", "", "Time in UTC, ISO 8601, by the job script"),
        Column("ended", "text", "", "Time in UTC, ISO 8601, by the job script"),
        Column("allocation", "text", "", "Job, id and attempt: equal for runs that had the same nodes"),
        Column("host", "text", "", "Node that the job script ran on"),
        Column("hosts", "json", "", "Nodes that the ranks ran on, as they say themselves, as an array"),
        Column("devices", "json", "", "What the ranks computed on, each kind once, as an array"),
        Column("processors", "json", "", "Models of the hosts' processors, each once, as an array"),
        Column("gpus", "json", "", "Models of the hosts' GPUs, each once, as an array"),
        Column("drivers", "json", "", "Versions of the GPUs' drivers, each once, as an array"),
        Column("host_bytes", "integer", "B", "Peak resident memory of all ranks together"),
        Column("host_rank_bytes", "integer", "B", "Peak resident memory of the rank that needed the most"),
        Column("device_bytes", "integer", "B", "Peak of the tensors on the GPU of the rank with the most"),
        Column("device_reserved_bytes", "integer", "B", "Peak that was held on the GPU of the rank with the most"),
        Column("device_parameters_bytes", "integer", "B", "Weights that last on the device of the rank with the most"),
        Column("device_gradients_bytes", "integer", "B", "Gradients that last on the device of the rank with the most"),
        Column("device_optimizer_bytes", "integer", "B", "Master weights and moments on the device, likewise"),
        Column("host_gradients_bytes", "integer", "B", "Gradients that last with the host, where states are offloaded"),
        Column("host_optimizer_bytes", "integer", "B", "Master weights and moments with the host, likewise"),
        Column("host_residuals_bytes", "integer", "B", "What error feedback keeps, in the rank with the most"),
        Column("host_down_bytes", "integer", "B", "From devices to hosts in the counted steps, all ranks together"),
        Column("host_up_bytes", "integer", "B", "From hosts to devices in the counted steps, all ranks together"),
        Column("hpcbench", "text", "", "Version of the worker"),
        Column("revision", "text", "", "Git revision of the worker, -dirty where it had changes"),
        Column("modules", "json", "", "Environment modules that were loaded, as an array"),
        Column("mpi", "text", "", "MPI library and version, as it says itself"),
        Column("python", "text", "", "Version of the worker's Python"),
        Column("torch", "text", "", "Version of PyTorch"),
        Column("numpy", "text", "", "Version of NumPy"),
        Column("kernels", "text", "", "Instruction set that the codecs used"),
        Column("model", "text", "", "Name of the model"),
        Column("layers", "integer", "1", "Transformer layers"),
        Column("hidden", "integer", "1", "Width of the residual stream"),
        Column("heads", "integer", "1", "Attention heads"),
        Column("vocab", "integer", "1", "Rows of the embedding"),
        Column("parameters", "integer", "1", "Of the whole model"),
        Column("model_flops_per_sample", "real", "FLOP", "What the model needs for one sequence, both passes"),
        Column("hardware_flops_per_sample", "real", "FLOP", "What one sequence costs, with what is recomputed"),
        Column("neox_flops_per_sample", "real", "FLOP", "The same by GPT-NeoX's formula"),
        Column("dp", "integer", "1", "Size of the data-parallel dimension"),
        Column("tp", "integer", "1", "Size of the tensor-parallel dimension"),
        Column("pp", "integer", "1", "Size of the pipeline-parallel dimension"),
        Column("ranks", "integer", "1", "Of the run"),
        Column("threads", "integer", "1", "A rank"),
        Column("device", "text", "", "What the run was to compute on: cpu or cuda"),
        Column("precision", "text", "", "Of weights and activations"),
        Column("zero", "integer", "", "ZeRO stage"),
        Column("seed", "integer", "", "Of this repeat"),
        Column("warmup_steps", "integer", "1", "Steps that throughput does not rest on"),
        Column("global_batch", "integer", "1", "Sequences a step, all ranks together"),
        Column("micro_batch", "integer", "1", "Sequences that a rank works on at a time"),
        Column("seq_len", "integer", "1", "Tokens a sequence"),
        Column("algorithm", "text", "", "How the scheme carries out collectives: native is the MPI library's own"),
        Column("codec", "text", "", "Codec of all traffic that no rule of the scheme names"),
        Column("rules", "json", "", "The scheme's rules: codecs by dimension, phase and kind, as an array"),
        Column("settings", "json", "", "All that the run was told: its run.json, as an object"),
        Column("steps_logged", "integer", "1", "Steps that the log holds"),
        Column("steps_planned", "integer", "1", "Steps that the run was to take, as the log says"),
        Column("file", "text", "", "Its log, by which the tables are joined; absent where there is none"),
    ),
)

CHANNELS = Table(
    "channels",
    "One row a run and channel, from the log's traffic event: sums over all ranks and the steps that it names.",
    (
        *IDENTITY,
        Column("from_step", "integer", "1", "First step that is counted"),
        Column("to_step", "integer", "1", "Last step that is counted"),
        Column("dimension", "text", "", "DP, ZERO, TP, SP, CP, PP, EP; EXACT is what is never compressed"),
        Column("phase", "text", "", "FORWARD, BACKWARD or STEP"),
        Column("kind", "text", "", "GRAD, ACT, PARAM or OPTIM"),
        Column("codec", "text", "", "What encoded it; none is no codec"),
        Column("algorithm", "text", "", "What was asked for"),
        Column("algorithms", "json", "", "Calls of the first rank, by what carried them out, as an object"),
        Column("calls", "integer", "1", "Collectives and messages"),
        Column("plain_calls", "integer", "1", "Those of them that were not worth encoding"),
        Column("message_bytes", "integer", "B", "Before the codec"),
        Column("coded_bytes", "integer", "B", "Those that went through the codec; absent in logs that do not say it"),
        Column("wire_bytes", "integer", "B", "After the codec; absent where nobody knows"),
        Column(
            "network_bytes",
            "integer",
            "B",
            "Those of them that left a node; the MPI library's own collectives do not say, and add 0",
        ),
        Column("encode_s", "real", "s", "Encoding"),
        Column("decode_s", "real", "s", "Decoding"),
        Column("transfer_s", "real", "s", "The rest of the time from begin to end of the calls"),
        Column("exposed_s", "real", "s", "In which the caller waited"),
        Column("hidden_s", "real", "s", "In which the calls moved while the caller did something else"),
        Column("sampled_error", "real", "1", "Relative error of sampled messages; absent where nothing was sampled"),
        *_SOURCE,
    ),
)

PHASES = Table(
    "phases",
    "One row a run and stage of its pipeline, from the log's phases event: means over the stage's ranks and the steps "
    "that it names.",
    (
        *IDENTITY,
        Column("from_step", "integer", "1", "First step that is counted"),
        Column("to_step", "integer", "1", "Last step that is counted"),
        Column("stage", "integer", "", "Stage of the pipeline, from 0"),
        Column("forward_s", "real", "s", "In the forward passes, with their tensor-parallel traffic"),
        Column("backward_s", "real", "s", "In the backward passes, with their traffic and what is computed again"),
        Column("bubble_s", "real", "s", "In the passes, waiting for another stage's message until it is there"),
        Column("reduction_s", "real", "s", "After the last backward pass, until the gradients are reduced"),
        Column("optimizer_s", "real", "s", "From the gradient norm to the new weights, gathered"),
        Column("other_s", "real", "s", "What is left of the step"),
        Column("step_s", "real", "s", "The step: the sum of the others"),
        *_SOURCE,
    ),
)

TABLES = {table.name: table for table in (RECORDS, RUNS, CHANNELS, PHASES)}


def fingerprint() -> str:
    """Changes with any change that `VERSION` must tell of; words of explanation are none."""
    said = [
        f"{table.name}.{column.name} {column.type} {column.unit}"
        for table in TABLES.values()
        for column in table.columns
    ]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def described() -> str:
    """The tables in Markdown, for docs/reference/records.md."""
    parts = []
    for table in TABLES.values():
        lines = [
            f"### `{table.name}`",
            "",
            table.meaning,
            "",
            "| column | type | unit | meaning |",
            "| --- | --- | --- | --- |",
        ]
        lines += [f"| `{one.name}` | {one.type} | {one.unit} | {one.meaning} |" for one in table.columns]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
