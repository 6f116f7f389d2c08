"""Tidy export schema: tables, columns, types and units.

All writers and docs/reference/records.md use this schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract import step_line
from hpcbench.report.quantities.catalogue import list_exported

VERSION = 11
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


def _count(name: str, meaning: str) -> ExportColumn:
    return ExportColumn(name, "integer", "1", meaning)


def _text(name: str, meaning: str) -> ExportColumn:
    return ExportColumn(name, "text", "", meaning)


def _json(name: str, meaning: str) -> ExportColumn:
    return ExportColumn(name, "json", "", meaning)


IDENTITY = (
    ExportColumn("schema_version", "integer", "", "Version of this schema"),
    _text("submission", "Directory of the submission; absent for single logs"),
    _text("study", "Name of the study"),
    _text("site", "Name of the site"),
    _text("dialect", "Program that wrote the log: hpcbench, or another framework"),
    _text("run", "Id of the run; unique within its submission"),
    _text("job", "Job that the run belongs to"),
    _text("scheme", "Name of the scheme"),
    ExportColumn("repeat", "integer", "", "Number of the repeat, from 1; each repeat has a higher seed"),
    _text("pairing", "Key of paired runs: runs with the same pairing and allocation are compared as pairs"),
    _json("cell", "Values of the study's matrix, except scheme and repeat (object)"),
    _text("state", "State of the run: completed, failed, nan, timed out, ..."),
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
    _text("file", "Log file that the row was read from; joins the tables"),
    _count("line", "Line in the log file, from 1"),
)

RECORDS = ExportTable(
    "records",
    "One row per observation: a step of a run, or an evaluation. A run's steps are in the order of its log, "
    "followed by its evaluations.",
    (
        *IDENTITY,
        _text("event", "step or evaluation"),
        _text("split", "Part of the data that an evaluation used, such as valid"),
        _count("step", "Number of the step, from 1; for an evaluation, the last step before the evaluation"),
        _count("steps", "Planned number of steps of the run"),
        *QUANTITIES,
        *_SOURCE,
    ),
)

RUNS = ExportTable(
    "runs",
    "One row per run, including runs without a log.",
    (
        *IDENTITY,
        _text("reason", "Reason for the state; absent if the state needs no explanation"),
        _text("reason_source", "File and line of the reason"),
        ExportColumn("exit_status", "integer", "", "Exit status of the launcher"),
        _text("started", "Start time that the job script recorded (UTC, ISO 8601)"),
        _text("ended", "End time that the job script recorded (UTC, ISO 8601)"),
        _text("allocation", "Job, its id and its attempt; runs in the same allocation have the same value"),
        _text("host", "Node that the job script ran on"),
        _json("hosts", "Nodes that the ranks ran on, as recorded by the ranks (array)"),
        _json("devices", "Kinds of devices that the ranks computed on (array)"),
        _json("processors", "Distinct models of the hosts' processors (array)"),
        _json("gpus", "Distinct models of the hosts' GPUs (array)"),
        _json("drivers", "Distinct versions of the GPU drivers (array)"),
        *_measured("runs"),
        _text("hpcbench", "Version of the worker"),
        _text("revision", "Git revision of the worker, with -dirty if the code had uncommitted changes"),
        _json("modules", "Environment modules that were loaded (array)"),
        _text("mpi", "Name and version that the MPI library reports"),
        _text("python", "Version of the worker's Python"),
        _text("torch", "Version of PyTorch"),
        _text("numpy", "Version of NumPy"),
        _text("kernels", "Instruction set that the codecs used"),
        _text("model", "Name of the model"),
        _count("layers", "Transformer layers"),
        _count("hidden", "Width of the residual stream"),
        _count("heads", "Attention heads"),
        _count("vocab", "Rows of the embedding"),
        _count("parameters", "Parameters of the whole model"),
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
        _count("dp", "Size of the data-parallel dimension"),
        _count("cp", "Ranks that share the positions of a sample"),
        _count("tp", "Size of the tensor-parallel dimension"),
        _count("pp", "Size of the pipeline-parallel dimension"),
        _count("ranks", "Ranks of the run"),
        _count("threads", "Threads of each rank"),
        _text("device", "Requested device of the run: cpu or cuda"),
        _text("precision", "Number format of weights and activations"),
        ExportColumn("zero", "integer", "", "ZeRO stage"),
        ExportColumn("seed", "integer", "", "Seed of this repeat"),
        _count("warmup_steps", "Number of steps at the start that the throughput excludes"),
        _count("global_batch", "Sequences per step, summed over all ranks"),
        _count("micro_batch", "Sequences that a rank works on at a time"),
        _count("seq_len", "Tokens per sequence"),
        _text("algorithm", "Algorithm of the scheme's collectives; native is the algorithm of the MPI library"),
        _text("codec", "Codec of all traffic that no rule of the scheme matches"),
        _json("rules", "The scheme's rules: codecs by dimension, phase and kind (array)"),
        _json("settings", "All settings of the run: the contents of run.json (object)"),
        ExportColumn("samples_per_s", "real", "1/s", "Samples per second of the steps that the throughput includes"),
        ExportColumn("tokens_per_s", "real", "1/s", "Tokens per second of these steps"),
        ExportColumn("tokens_per_s_per_rank", "real", "1/s", "Tokens per second and rank of these steps"),
        ExportColumn("step_seconds_mean", "real", "s", "Mean step time of these steps"),
        ExportColumn("step_seconds_p50", "real", "s", "Median of these step times"),
        ExportColumn("step_seconds_p95", "real", "s", "95th percentile of these step times"),
        ExportColumn("step_seconds_p99", "real", "s", "99th percentile of these step times"),
        _text("lowest_numerical_precision_in_comm", "Message format with the fewest bits, as MLPerf names it"),
        _text(
            "lowest_numerical_precision_in_linear", "Format of matrix products with the fewest bits, as MLPerf names it"
        ),
        _count("steps_logged", "Number of steps in the log"),
        _count("steps_planned", "Planned number of steps, according to the log"),
        _text("file", "Log file of the run; joins the tables; absent without a log"),
    ),
)

CHANNELS = ExportTable(
    "channels",
    "One row per run and channel, from the log's traffic event: sums over all ranks, and over the steps from "
    "`from_step` to `to_step`.",
    (
        *IDENTITY,
        _count("from_step", "First counted step"),
        _count("to_step", "Last counted step"),
        _text("dimension", "DP, ZERO, TP, SP, CP, PP, EP; EXACT is traffic that is never compressed"),
        _text("phase", "FORWARD, BACKWARD or STEP"),
        _text("kind", "GRAD, ACT, PARAM or OPTIM"),
        _text("axis", "Axis of the tensor grid, for layout.tensor 2d, 2.5d and 3d"),
        _text("codec", "Codec of the messages; none if messages are not encoded"),
        _text("algorithm", "Algorithm that the scheme asks for"),
        _json("algorithms", "Number of calls of the first rank for each algorithm that was used (object)"),
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
        _count("from_step", "First counted step"),
        _count("to_step", "Last counted step"),
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
        _text("of", "Kind of the place: a stage of a pipeline, or a shard of a parameter server"),
        ExportColumn("place", "integer", "", "Number of the stage or shard, from 0"),
        _count("versions", "Largest number of versions of the weights that the stage stored at a time"),
        _count(
            "staleness",
            "Number of updates between the weights that a gradient was computed with and the weights that it changed",
        ),
        _count("gradients", "Number of gradients in the whole run"),
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
