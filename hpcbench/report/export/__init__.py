"""The tidy schema of the export: tables, columns, types, units.

All writers and docs/reference/records.md follow it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract import step_line
from hpcbench.report.quantities.catalogue import list_exported

VERSION = 7
"""Raised whenever a column is added, taken away, renamed, or changes its type, unit or place."""

Type = Literal["text", "json", "integer", "real"]
"""Types of columns. ``json`` is text that holds a JSON value; ``integer`` has 64 bits, ``real`` is a double."""
Value = str | int | float | None
"""A value of a row. None is an absent value. NaN and infinity are values."""


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
        """Names of the columns."""
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
    Column("state", "text", "", "State of the run: completed, failed, nan, timed out, ..."),
)
"""Columns that every row begins with."""


def _measured(table: str) -> Iterator[Column]:
    """Columns of the quantities that are declared for a table."""
    for one in list_exported(table):
        if one.exported:
            yield Column(one.key, one.exported.kind, one.unit, f"{one.meaning}{one.exported.remark}")


_ALSO = {"loss": ", or loss of the evaluation"}
"""Meanings that a quantity has only in a row of an evaluation."""
QUANTITIES = tuple(
    Column(one.name, one.kind, one.unit, f"{one.meaning}{_ALSO.get(one.name, '')}") for one in step_line.QUANTITIES
)
"""Columns of all quantities of a step."""

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
        Column("split", "text", "", "Part of the data that an evaluation used, such as valid"),
        Column("step", "integer", "1", "Number of the step, from 1; for an evaluation, the step before it"),
        Column("steps", "integer", "1", "Steps that the run was to take"),
        *QUANTITIES,
        *_SOURCE,
    ),
)

RUNS = Table(
    "runs",
    "One row for each run, also for runs without a log.",
    (
        *IDENTITY,
        Column("reason", "text", "", "Why it is in that state; absent where the state needs no explanation"),
        Column("reason_source", "text", "", "File and line of the reason"),
        Column("exit_status", "integer", "", "Exit status of the launcher"),
        Column("started", "text", "", "Time in UTC, ISO 8601, by the job script"),
        Column("ended", "text", "", "Time in UTC, ISO 8601, by the job script"),
        Column("allocation", "text", "", "Job, id and attempt: equal for runs that had the same nodes"),
        Column("host", "text", "", "Node that the job script ran on"),
        Column("hosts", "json", "", "Nodes that the ranks ran on, by their own records, as an array"),
        Column("devices", "json", "", "Devices that the ranks computed on, each kind once, as an array"),
        Column("processors", "json", "", "Models of the hosts' processors, each once, as an array"),
        Column("gpus", "json", "", "Models of the hosts' GPUs, each once, as an array"),
        Column("drivers", "json", "", "Versions of the GPUs' drivers, each once, as an array"),
        *_measured("runs"),
        Column("hpcbench", "text", "", "Version of the worker"),
        Column("revision", "text", "", "Git revision of the worker, -dirty where it had changes"),
        Column("modules", "json", "", "Environment modules that were loaded, as an array"),
        Column("mpi", "text", "", "Name and version of the MPI library, as it gives them"),
        Column("python", "text", "", "Version of the worker's Python"),
        Column("torch", "text", "", "Version of PyTorch"),
        Column("numpy", "text", "", "Version of NumPy"),
        Column("kernels", "text", "", "Instruction set that the codecs used"),
        Column("model", "text", "", "Name of the model"),
        Column("layers", "integer", "1", "Transformer layers"),
        Column("hidden", "integer", "1", "Width of the residual stream"),
        Column("heads", "integer", "1", "Attention heads"),
        Column("vocab", "integer", "1", "Rows of the embedding"),
        Column("parameters", "integer", "1", "Parameters of the whole model"),
        Column(
            "model_flops_per_sample",
            "real",
            "FLOP",
            "Operations that the model needs for one sequence, both passes, if experts drop only what no place is for",
        ),
        Column(
            "hardware_flops_per_sample",
            "real",
            "FLOP",
            "Operations that are executed for one sequence, recomputation and empty places of experts included",
        ),
        Column("neox_flops_per_sample", "real", "FLOP", "The same by GPT-NeoX's formula"),
        Column("dp", "integer", "1", "Size of the data-parallel dimension"),
        Column("cp", "integer", "1", "Ranks that share the positions of a sample"),
        Column("tp", "integer", "1", "Size of the tensor-parallel dimension"),
        Column("pp", "integer", "1", "Size of the pipeline-parallel dimension"),
        Column("ranks", "integer", "1", "Ranks of the run"),
        Column("threads", "integer", "1", "Threads of each rank"),
        Column("device", "text", "", "Device that the run was to compute on: cpu or cuda"),
        Column("precision", "text", "", "Number format of weights and activations"),
        Column("zero", "integer", "", "ZeRO stage"),
        Column("seed", "integer", "", "Seed of this repeat"),
        Column("warmup_steps", "integer", "1", "Steps that the throughput leaves out"),
        Column("global_batch", "integer", "1", "Sequences a step, all ranks together"),
        Column("micro_batch", "integer", "1", "Sequences that a rank works on at a time"),
        Column("seq_len", "integer", "1", "Tokens a sequence"),
        Column("algorithm", "text", "", "How the scheme carries out collectives: native is the MPI library's own"),
        Column("codec", "text", "", "Codec of all traffic that no rule of the scheme names"),
        Column("rules", "json", "", "The scheme's rules: codecs by dimension, phase and kind, as an array"),
        Column("settings", "json", "", "All settings of the run: its run.json, as an object"),
        Column("steps_logged", "integer", "1", "Steps that the log holds"),
        Column("steps_planned", "integer", "1", "Planned steps, by the log"),
        Column("file", "text", "", "Its log, by which the tables are joined; absent where there is none"),
    ),
)

CHANNELS = Table(
    "channels",
    "One row for each run and channel, from the log's traffic event: sums over all ranks and the steps that it names.",
    (
        *IDENTITY,
        Column("from_step", "integer", "1", "First step that is counted"),
        Column("to_step", "integer", "1", "Last step that is counted"),
        Column("dimension", "text", "", "DP, ZERO, TP, SP, CP, PP, EP; EXACT is traffic that is never compressed"),
        Column("phase", "text", "", "FORWARD, BACKWARD or STEP"),
        Column("kind", "text", "", "GRAD, ACT, PARAM or OPTIM"),
        Column("axis", "text", "", "Axis of the tensor grid, of layout.tensor 2d, 2.5d and 3d"),
        Column("codec", "text", "", "Codec of the messages; none is no codec"),
        Column("algorithm", "text", "", "Algorithm that the scheme asks for"),
        Column(
            "algorithms", "json", "", "Calls of the first rank by the algorithm that carried them out, as an object"
        ),
        *_measured("channels"),
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
        *_measured("phases"),
        *_SOURCE,
    ),
)

STALENESS = Table(
    "staleness",
    "One row a run, stage or shard, and staleness, from the log's staleness event: how many gradients were of weights "
    "that were so many updates old. No row for runs whose gradients are always of the newest weights.",
    (
        *IDENTITY,
        Column("of", "text", "", "What the place is: a stage of a pipeline, or a shard of a parameter server"),
        Column("place", "integer", "", "Number of the stage or shard, from 0"),
        Column("versions", "integer", "1", "The most versions of the weights that the stage held at a time"),
        Column("staleness", "integer", "1", "Updates between the weights of the gradient and those it changed"),
        Column("gradients", "integer", "1", "Number of gradients, in the whole run"),
        *_SOURCE,
    ),
)

TABLES = {table.name: table for table in (RECORDS, RUNS, CHANNELS, PHASES, STALENESS)}


def fingerprint() -> str:
    """Return a digest that changes with every change that `VERSION` must show. Explanations do not count."""
    said = [
        f"{table.name}.{column.name} {column.type} {column.unit}"
        for table in TABLES.values()
        for column in table.columns
    ]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def described() -> str:
    """Return the tables in Markdown, for docs/reference/records.md."""
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
