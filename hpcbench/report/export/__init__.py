"""Tidy export schema: tables, columns, types, units.

All writers and docs/reference/records.md use this schema.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract import step_line
from hpcbench.report.quantities.catalogue import list_exported

VERSION = 9
"""Schema version. It increases when columns are added, removed, renamed or moved, or change their type or unit."""

Type = Literal["text", "json", "integer", "real"]
"""Column types. ``json`` is text that contains a JSON value, ``integer`` has 64 bits, and ``real`` is a double."""
Value = str | int | float | None
"""Value in a row. None represents a missing value. NaN and infinity are valid values."""


@dataclass(frozen=True)
class ExportColumn:
    """A column of a table."""

    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class ExportTable:
    """A table. Rows are tuples of values in column order."""

    name: str
    meaning: str
    columns: tuple[ExportColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)


Row = tuple[Value, ...]

IDENTITY = (
    ExportColumn("schema_version", "integer", "", "Version of this schema"),
    ExportColumn("submission", "text", "", "Directory of the submission; absent for logs that were given one by one"),
    ExportColumn("study", "text", "", "Name of the study"),
    ExportColumn("site", "text", "", "Name of the site"),
    ExportColumn("dialect", "text", "", "Program that wrote the log: hpcbench, or another framework"),
    ExportColumn("run", "text", "", "Id of the run; unique within its submission"),
    ExportColumn("job", "text", "", "Job that the run belongs to"),
    ExportColumn("scheme", "text", "", "Name of the scheme"),
    ExportColumn("repeat", "integer", "", "Number of the repeat, from 1; the seed grows with it"),
    ExportColumn("pairing", "text", "", "Runs of equal pairing and allocation are compared as pairs"),
    ExportColumn("cell", "json", "", "Values of the study's matrix, except scheme and repeat, as a JSON object"),
    ExportColumn("state", "text", "", "State of the run: completed, failed, nan, timed out, ..."),
)
"""Leading columns of every row."""


def _measured(table: str) -> Iterator[ExportColumn]:
    """Yield the columns of quantities that are declared for a table."""
    for quantity in list_exported(table):
        if quantity.exported:
            yield ExportColumn(
                quantity.key, quantity.exported.kind, quantity.unit, f"{quantity.meaning}{quantity.exported.remark}"
            )


_ALSO = {"loss": ", or loss of the evaluation"}
"""Additional meanings of quantities in evaluation rows."""
QUANTITIES = tuple(
    ExportColumn(quantity.name, quantity.kind, quantity.unit, f"{quantity.meaning}{_ALSO.get(quantity.name, '')}")
    for quantity in step_line.QUANTITIES
)
"""Columns of all step quantities."""

_SOURCE = (
    ExportColumn("file", "text", "", "The log that the row was read from; the tables are joined by it"),
    ExportColumn("line", "integer", "1", "Line in it, from 1"),
)

RECORDS = ExportTable(
    "records",
    "One row an observation: a step of a run, or an evaluation. A run's steps stand in the order of its log, its "
    "evaluations after them.",
    (
        *IDENTITY,
        ExportColumn("event", "text", "", "step or evaluation"),
        ExportColumn("split", "text", "", "Part of the data that an evaluation used, such as valid"),
        ExportColumn("step", "integer", "1", "Number of the step, from 1; for an evaluation, the step before it"),
        ExportColumn("steps", "integer", "1", "Steps that the run was to take"),
        *QUANTITIES,
        *_SOURCE,
    ),
)

RUNS = ExportTable(
    "runs",
    "One row for each run, also for runs without a log.",
    (
        *IDENTITY,
        ExportColumn("reason", "text", "", "Why it is in that state; absent where the state needs no explanation"),
        ExportColumn("reason_source", "text", "", "File and line of the reason"),
        ExportColumn("exit_status", "integer", "", "Exit status of the launcher"),
        ExportColumn("started", "text", "", "Time in UTC, ISO 8601, by the job script"),
        ExportColumn("ended", "text", "", "Time in UTC, ISO 8601, by the job script"),
        ExportColumn("allocation", "text", "", "Job, id and attempt: equal for runs that had the same nodes"),
        ExportColumn("host", "text", "", "Node that the job script ran on"),
        ExportColumn("hosts", "json", "", "Nodes that the ranks ran on, by their own records, as an array"),
        ExportColumn("devices", "json", "", "Devices that the ranks computed on, each kind once, as an array"),
        ExportColumn("processors", "json", "", "Models of the hosts' processors, each once, as an array"),
        ExportColumn("gpus", "json", "", "Models of the hosts' GPUs, each once, as an array"),
        ExportColumn("drivers", "json", "", "Versions of the GPUs' drivers, each once, as an array"),
        *_measured("runs"),
        ExportColumn("hpcbench", "text", "", "Version of the worker"),
        ExportColumn("revision", "text", "", "Git revision of the worker, -dirty where it had changes"),
        ExportColumn("modules", "json", "", "Environment modules that were loaded, as an array"),
        ExportColumn("mpi", "text", "", "Name and version of the MPI library, as it gives them"),
        ExportColumn("python", "text", "", "Version of the worker's Python"),
        ExportColumn("torch", "text", "", "Version of PyTorch"),
        ExportColumn("numpy", "text", "", "Version of NumPy"),
        ExportColumn("kernels", "text", "", "Instruction set that the codecs used"),
        ExportColumn("model", "text", "", "Name of the model"),
        ExportColumn("layers", "integer", "1", "Transformer layers"),
        ExportColumn("hidden", "integer", "1", "Width of the residual stream"),
        ExportColumn("heads", "integer", "1", "Attention heads"),
        ExportColumn("vocab", "integer", "1", "Rows of the embedding"),
        ExportColumn("parameters", "integer", "1", "Parameters of the whole model"),
        ExportColumn(
            "model_flops_per_sample",
            "real",
            "FLOP",
            "Operations that the model needs for one sequence, both passes, if experts drop only what no place is for",
        ),
        ExportColumn(
            "hardware_flops_per_sample",
            "real",
            "FLOP",
            "Operations executed for one sequence, including recomputation and unused expert capacity",
        ),
        ExportColumn("neox_flops_per_sample", "real", "FLOP", "The same by GPT-NeoX's formula"),
        ExportColumn("dp", "integer", "1", "Size of the data-parallel dimension"),
        ExportColumn("cp", "integer", "1", "Ranks that share the positions of a sample"),
        ExportColumn("tp", "integer", "1", "Size of the tensor-parallel dimension"),
        ExportColumn("pp", "integer", "1", "Size of the pipeline-parallel dimension"),
        ExportColumn("ranks", "integer", "1", "Ranks of the run"),
        ExportColumn("threads", "integer", "1", "Threads of each rank"),
        ExportColumn("device", "text", "", "Device that the run was to compute on: cpu or cuda"),
        ExportColumn("precision", "text", "", "Number format of weights and activations"),
        ExportColumn("zero", "integer", "", "ZeRO stage"),
        ExportColumn("seed", "integer", "", "Seed of this repeat"),
        ExportColumn("warmup_steps", "integer", "1", "Steps that the throughput leaves out"),
        ExportColumn("global_batch", "integer", "1", "Sequences per step, summed over all ranks"),
        ExportColumn("micro_batch", "integer", "1", "Sequences that a rank works on at a time"),
        ExportColumn("seq_len", "integer", "1", "Tokens per sequence"),
        ExportColumn("algorithm", "text", "", "Algorithm of the scheme's collectives; native is the MPI library's own"),
        ExportColumn("codec", "text", "", "Codec of all traffic that no rule of the scheme names"),
        ExportColumn("rules", "json", "", "The scheme's rules: codecs by dimension, phase and kind, as an array"),
        ExportColumn("settings", "json", "", "All settings of the run: its run.json, as an object"),
        ExportColumn("step_seconds_mean", "real", "s", "Mean step time, over the steps that the throughput counts"),
        ExportColumn("step_seconds_p50", "real", "s", "Median of these step times"),
        ExportColumn("step_seconds_p95", "real", "s", "95th percentile of these step times"),
        ExportColumn("step_seconds_p99", "real", "s", "99th percentile of these step times"),
        ExportColumn(
            "lowest_numerical_precision_in_comm",
            "text",
            "",
            "Format of messages with the fewest bits, in MLPerf's words",
        ),
        ExportColumn(
            "lowest_numerical_precision_in_linear", "text", "", "Lowest format of matrix products, in MLPerf's words"
        ),
        ExportColumn("steps_logged", "integer", "1", "Steps that the log holds"),
        ExportColumn("steps_planned", "integer", "1", "Planned steps, by the log"),
        ExportColumn("file", "text", "", "Its log, the key that joins the tables; absent without a log"),
    ),
)

CHANNELS = ExportTable(
    "channels",
    "One row for each run and channel, from the log's traffic event: sums over all ranks and the steps that it names.",
    (
        *IDENTITY,
        ExportColumn("from_step", "integer", "1", "First step that is counted"),
        ExportColumn("to_step", "integer", "1", "Last step that is counted"),
        ExportColumn(
            "dimension", "text", "", "DP, ZERO, TP, SP, CP, PP, EP; EXACT is traffic that is never compressed"
        ),
        ExportColumn("phase", "text", "", "FORWARD, BACKWARD or STEP"),
        ExportColumn("kind", "text", "", "GRAD, ACT, PARAM or OPTIM"),
        ExportColumn("axis", "text", "", "Axis of the tensor grid, of layout.tensor 2d, 2.5d and 3d"),
        ExportColumn("codec", "text", "", "Codec of the messages; none for no codec"),
        ExportColumn("algorithm", "text", "", "Algorithm that the scheme asks for"),
        ExportColumn(
            "algorithms", "json", "", "Calls of the first rank by the algorithm that carried them out, as an object"
        ),
        *_measured("channels"),
        *_SOURCE,
    ),
)

PHASES = ExportTable(
    "phases",
    "One row per run and pipeline stage, from the log's phases event: means over the stage's ranks and the steps "
    "that it names.",
    (
        *IDENTITY,
        ExportColumn("from_step", "integer", "1", "First step that is counted"),
        ExportColumn("to_step", "integer", "1", "Last step that is counted"),
        ExportColumn("stage", "integer", "", "Stage of the pipeline, from 0"),
        *_measured("phases"),
        *_SOURCE,
    ),
)

STALENESS = ExportTable(
    "staleness",
    "One row per run, stage or shard, and staleness, from the log's staleness event: the number of gradients that "
    "were computed with weights of this age. No row for runs whose gradients are always of the newest weights.",
    (
        *IDENTITY,
        ExportColumn("of", "text", "", "What the place is: a stage of a pipeline, or a shard of a parameter server"),
        ExportColumn("place", "integer", "", "Number of the stage or shard, from 0"),
        ExportColumn("versions", "integer", "1", "The most versions of the weights that the stage held at a time"),
        ExportColumn("staleness", "integer", "1", "Updates between the weights of the gradient and those it changed"),
        ExportColumn("gradients", "integer", "1", "Number of gradients, in the whole run"),
        *_SOURCE,
    ),
)

TABLES = {table.name: table for table in (RECORDS, RUNS, CHANNELS, PHASES, STALENESS)}


def compute_fingerprint() -> str:
    """Return a digest of the schema without descriptions. If the digest changes, `VERSION` must increase."""
    columns = [
        f"{table.name}.{column.name} {column.type} {column.unit}"
        for table in TABLES.values()
        for column in table.columns
    ]
    return hashlib.sha256("\n".join(columns).encode()).hexdigest()


def describe_tables() -> str:
    """Return Markdown tables for docs/reference/records.md."""
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
        lines += [f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |" for column in table.columns]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
