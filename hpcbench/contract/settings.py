"""The settings of a run, read from a run.json of any version.

The strict schemas for writing are in `hpcbench.contract.run` and `program`. In this module, a missing value or a value
of a different type becomes None, so that reports can read runs of other versions. The attribute `raw` of a section is
its JSON object.
"""

from dataclasses import dataclass
from typing import Any

from hpcbench.contract.event.part import LogObject
from hpcbench.contract.process_changes import describe_changes


@dataclass(frozen=True, kw_only=True)
class ModelSettings(LogObject):
    """The model of a run."""

    name: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    mlp_width: int | None = None
    activation: str | None = None
    norm: str | None = None
    bias: bool | None = None
    vocab: int | None = None
    experts: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class StepWork(LogObject):
    """The work of a run's steps."""

    steps: int | None = None
    warmup_steps: int | None = None
    global_batch: int | None = None
    seq_len: int | None = None
    precision: str | None = None
    recompute: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class CommPrecisionSettings(LogObject):
    """Number formats of a run's messages."""

    activations: str | None = None
    gradients: str | None = None
    parameters: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrainSettings(StepWork):
    """The training settings of a run."""

    micro_batch: int | None = None
    comm_precision: CommPrecisionSettings = CommPrecisionSettings()
    zero: int | None = None
    seed: int | None = None
    optimizer: str | None = None
    schedule: str | None = None
    vertical_sync: bool | None = None
    sync: str | None = None
    staleness: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProgramSettings(StepWork):
    """The user's program that a run starts."""

    command: str | None = None
    log: str | dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class LayoutSettings(LogObject):
    """The layout of a run's ranks."""

    dp: int | None = None
    cp: int | None = None
    context: str = "ring"
    tp: int | None = None
    tensor: str = "1d"
    depth: int = 1
    pp: int | None = None
    ep: int = 1
    chunks: int = 1
    stages: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RuleSettings(LogObject):
    """A rule of a scheme."""

    dimension: str | None = None
    phase: str | None = None
    kind: str | None = None
    codec: str | None = None
    feedback: bool | None = None
    low_rank: int | None = None
    sample_changes: int | None = None
    mixed_bits: float | None = None
    differences: bool | None = None
    from_step: int | None = None
    until_step: int | None = None

    @property
    def has_steps(self) -> bool:
        """Whether the rule applies to some steps only."""
        return (self.from_step or 1) > 1 or self.until_step is not None


@dataclass(frozen=True, kw_only=True)
class SchemeSettings(LogObject):
    """The scheme of a run."""

    name: str | None = None
    algorithm: str | None = None
    default: str | None = None
    rules: tuple[RuleSettings, ...] | None = None
    environment: dict[str, Any] | None = None
    arguments: str | None = None
    preload: str | None = None
    setup: tuple[str, ...] | None = None
    optimizer: str | None = None

    @property
    def process_changes(self) -> str:
        """Variables, arguments, library and setup lines of the scheme, which may enable the codec of another system."""
        return describe_changes(
            environment={str(name): str(value) for name, value in (self.environment or {}).items()},
            arguments=self.arguments or "",
            preload=self.preload,
            setup=self.setup or (),
        )

    @property
    def hides_traffic(self) -> bool:
        """Whether a library may change the messages, so that the counted bytes may differ from the sent bytes."""
        return bool(self.environment or self.preload or self.setup)

    @property
    def codecs(self) -> set[str | None]:
        """Codecs of all rules, including the default rule. The set is empty if the rules are unknown."""
        is_known = self.default is not None and self.rules is not None
        return {self.default, *(rule.codec for rule in self.rules or ())} if is_known else set()

    @property
    def is_uncompressed(self) -> bool:
        """Whether the traffic is uncompressed. The value is False if the scheme is unknown or has process changes."""
        plain = self.codecs == {"none"} and not any(rule.low_rank for rule in self.rules or ())
        return plain and not self.process_changes


@dataclass(frozen=True, kw_only=True)
class ShapeSettings(LogObject):
    """The placement of a run's ranks."""

    nodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedSettings(LogObject):
    """The settings of a run."""

    study: str | None = None
    run: str | None = None
    site: str | None = None
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    program: ProgramSettings = ProgramSettings()
    layout: LayoutSettings = LayoutSettings()
    scheme: SchemeSettings = SchemeSettings()
    shape: ShapeSettings = ShapeSettings()
    ranks: int | None = None
    threads: int | None = None
    oversubscribe: bool = False
    device: str | None = None
    peak_tflops: dict[str, Any] | None = None

    @property
    def work(self) -> StepWork:
        """The work of a step of hpcbench's training, or of a user's program."""
        return self.train if self.train.raw else self.program
