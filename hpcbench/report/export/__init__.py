"""Tidy export schema: tables, columns, types and units.

All writers and docs/reference/records.md use this schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract import step_line
from hpcbench.report.quantities.catalogue import list_exported

VERSION = 9
"""Schema version, which increases if columns are added, removed, renamed or moved, or if their type or unit changes."""

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
    ExportColumn("submission", "text", "", "Directory of the submission; absent for single logs"),
    ExportColumn("study", "text", "", "Name of the study"),
    ExportColumn("site", "text", "", "Name of the site"),
    ExportColumn("dialect", "text", "", "Program that wrote the log: hpcbench, or another framework"),
    ExportColumn("run", "text", "", "Id of the run; unique within its submission"),
    ExportColumn("job", "text", "", "Job that the run belongs to"),
    ExportColumn("scheme", "text", "", "Name of the scheme"),
    ExportColumn("repeat", "integer", "", "Number of the repeat, from 1; each repeat has a higher seed"),
    ExportColumn(
        "pairing", "text", "", "Key of paired runs: runs with the same pairing and allocation are compared as pairs"
    ),
    ExportColumn("cell", "json", "", "Values of the study's matrix, except scheme and repeat (object)"),
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
"""Additions to the descriptions of quantities that have another meaning in evaluation rows."""
QUANTITIES = tuple(
    ExportColumn(quantity.name, quantity.kind, quantity.unit, f"{quantity.meaning}{_ALSO.get(quantity.name, '')}")
    for quantity in step_line.QUANTITIES
)
"""Columns of all step quantities."""

_SOURCE = (
    ExportColumn("file", "text", "", "Log file that the row was read from; joins the tables"),
    ExportColumn("line", "integer", "1", "Line in the log file, from 1"),
)

RECORDS = ExportTable(
    "records",
    "One row per observation: a step of a run, or an evaluation. A run's steps are in the order of its log, "
    "followed by its evaluations.",
    (
        *IDENTITY,
        ExportColumn("event", "text", "", "step or evaluation"),
        ExportColumn("split", "text", "", "Part of the data that an evaluation used, such as valid"),
        ExportColumn(
            "step", "integer", "1", "Number of the step, from 1; for an evaluation, the last step before the evaluation"
        ),
        ExportColumn("steps", "integer", "1", "Planned number of steps of the run"),
        *QUANTITIES,
        *_SOURCE,
    ),
)

RUNS = ExportTable(
    "runs",
    "One row per run, including runs without a log.",
    (
        *IDENTITY,
        ExportColumn("reason", "text", "", "Reason for the state; absent if the state needs no explanation"),
        ExportColumn("reason_source", "text", "", "File and line of the reason"),
        ExportColumn("exit_status", "integer", "", "Exit status of the launcher"),
        ExportColumn("started", "text", "", "Start time that the job script recorded (UTC, ISO 8601)"),
        ExportColumn("ended", "text", "", "End time that the job script recorded (UTC, ISO 8601)"),
        ExportColumn(
            "allocation", "text", "", "Job, its id and its attempt; runs in the same allocation have the same value"
        ),
        ExportColumn("host", "text", "", "Node that the job script ran on"),
        ExportColumn("hosts", "json", "", "Nodes that the ranks ran on, as recorded by the ranks (array)"),
        ExportColumn("devices", "json", "", "Kinds of devices that the ranks computed on (array)"),
        ExportColumn("processors", "json", "", "Distinct models of the hosts' processors (array)"),
        ExportColumn("gpus", "json", "", "Distinct models of the hosts' GPUs (array)"),
        ExportColumn("drivers", "json", "", "Distinct versions of the GPU drivers (array)"),
        *_measured("runs"),
        ExportColumn("hpcbench", "text", "", "Version of the worker"),
        ExportColumn(
            "revision", "text", "", "Git revision of the worker, with -dirty if the code had uncommitted changes"
        ),
        ExportColumn("modules", "json", "", "Environment modules that were loaded (array)"),
        ExportColumn("mpi", "text", "", "Name and version that the MPI library reports"),
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
            "Operations of the forward and backward passes for one sequence, if experts drop only tokens beyond "
            "their capacity",
        ),
        ExportColumn(
            "hardware_flops_per_sample",
            "real",
            "FLOP",
            "Operations executed for one sequence, including recomputation and unused expert capacity",
        ),
        ExportColumn(
            "neox_flops_per_sample", "real", "FLOP", "Operations for one sequence according to GPT-NeoX's formula"
        ),
        ExportColumn("dp", "integer", "1", "Size of the data-parallel dimension"),
        ExportColumn("cp", "integer", "1", "Ranks that share the positions of a sample"),
        ExportColumn("tp", "integer", "1", "Size of the tensor-parallel dimension"),
        ExportColumn("pp", "integer", "1", "Size of the pipeline-parallel dimension"),
        ExportColumn("ranks", "integer", "1", "Ranks of the run"),
        ExportColumn("threads", "integer", "1", "Threads of each rank"),
        ExportColumn("device", "text", "", "Requested device of the run: cpu or cuda"),
        ExportColumn("precision", "text", "", "Number format of weights and activations"),
        ExportColumn("zero", "integer", "", "ZeRO stage"),
        ExportColumn("seed", "integer", "", "Seed of this repeat"),
        ExportColumn("warmup_steps", "integer", "1", "Number of steps at the start that the throughput excludes"),
        ExportColumn("global_batch", "integer", "1", "Sequences per step, summed over all ranks"),
        ExportColumn("micro_batch", "integer", "1", "Sequences that a rank works on at a time"),
        ExportColumn("seq_len", "integer", "1", "Tokens per sequence"),
        ExportColumn(
            "algorithm", "text", "", "Algorithm of the scheme's collectives; native is the algorithm of the MPI library"
        ),
        ExportColumn("codec", "text", "", "Codec of all traffic that no rule of the scheme matches"),
        ExportColumn("rules", "json", "", "The scheme's rules: codecs by dimension, phase and kind (array)"),
        ExportColumn("settings", "json", "", "All settings of the run: the contents of run.json (object)"),
        ExportColumn("step_seconds_mean", "real", "s", "Mean step time of the steps that the throughput includes"),
        ExportColumn("step_seconds_p50", "real", "s", "Median of these step times"),
        ExportColumn("step_seconds_p95", "real", "s", "95th percentile of these step times"),
        ExportColumn("step_seconds_p99", "real", "s", "99th percentile of these step times"),
        ExportColumn(
            "lowest_numerical_precision_in_comm",
            "text",
            "",
            "Message format with the fewest bits, as MLPerf names it",
        ),
        ExportColumn(
            "lowest_numerical_precision_in_linear",
            "text",
            "",
            "Format of matrix products with the fewest bits, as MLPerf names it",
        ),
        ExportColumn("steps_logged", "integer", "1", "Number of steps in the log"),
        ExportColumn("steps_planned", "integer", "1", "Planned number of steps, according to the log"),
        ExportColumn("file", "text", "", "Log file of the run; joins the tables; absent without a log"),
    ),
)

CHANNELS = ExportTable(
    "channels",
    "One row per run and channel, from the log's traffic event: sums over all ranks, and over the steps from "
    "`from_step` to `to_step`.",
    (
        *IDENTITY,
        ExportColumn("from_step", "integer", "1", "First counted step"),
        ExportColumn("to_step", "integer", "1", "Last counted step"),
        ExportColumn(
            "dimension", "text", "", "DP, ZERO, TP, SP, CP, PP, EP; EXACT is traffic that is never compressed"
        ),
        ExportColumn("phase", "text", "", "FORWARD, BACKWARD or STEP"),
        ExportColumn("kind", "text", "", "GRAD, ACT, PARAM or OPTIM"),
        ExportColumn("axis", "text", "", "Axis of the tensor grid, for layout.tensor 2d, 2.5d and 3d"),
        ExportColumn("codec", "text", "", "Codec of the messages; none if messages are not encoded"),
        ExportColumn("algorithm", "text", "", "Algorithm that the scheme asks for"),
        ExportColumn(
            "algorithms", "json", "", "Number of calls of the first rank for each algorithm that was used (object)"
        ),
        *_measured("channels"),
        *_SOURCE,
    ),
)

PHASES = ExportTable(
    "phases",
    "One row per run and pipeline stage, from the log's phases event: means over the stage's ranks, and over the "
    "steps from `from_step` to `to_step`.",
    (
        *IDENTITY,
        ExportColumn("from_step", "integer", "1", "First counted step"),
        ExportColumn("to_step", "integer", "1", "Last counted step"),
        ExportColumn("stage", "integer", "", "Stage of the pipeline, from 0"),
        *_measured("phases"),
        *_SOURCE,
    ),
)

STALENESS = ExportTable(
    "staleness",
    "One row per run, stage or shard, and staleness, from the log's staleness event: the number of gradients "
    "that were computed with weights of this age. Runs whose gradients always use the newest weights have no row.",
    (
        *IDENTITY,
        ExportColumn("of", "text", "", "Kind of the place: a stage of a pipeline, or a shard of a parameter server"),
        ExportColumn("place", "integer", "", "Number of the stage or shard, from 0"),
        ExportColumn(
            "versions", "integer", "1", "Largest number of versions of the weights that the stage stored at a time"
        ),
        ExportColumn(
            "staleness",
            "integer",
            "1",
            "Number of updates between the weights that a gradient was computed with and the weights that it changed",
        ),
        ExportColumn("gradients", "integer", "1", "Number of gradients in the whole run"),
        *_SOURCE,
    ),
)

TABLES = {table.name: table for table in (RECORDS, RUNS, CHANNELS, PHASES, STALENESS)}


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
