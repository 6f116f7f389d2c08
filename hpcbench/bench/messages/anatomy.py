"""All figures of messages, by channel and step: each message is looked at once and then let go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpcbench.bench.messages.coded import Coded, all_through
from hpcbench.bench.messages.fields import Fields, fields
from hpcbench.bench.messages.find import Sample, Source, samples
from hpcbench.bench.messages.magnitudes import Magnitudes, magnitudes
from hpcbench.bench.messages.spectrum import Spectrum, matrices, spectra


@dataclass(frozen=True)
class Between:
    """Least, median and most of a figure over messages or matrices."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Between":
        """What lies between the extremes of some figures, at least one."""
        return cls(min(figures), float(np.median(figures)), max(figures))


@dataclass(frozen=True)
class Anatomy:
    """The figures of one message."""

    run: str
    tokens: int | None
    """Tokens that a gradient message of the run is a sum over, at most."""
    rank: int
    place: int
    size: int
    """Values of the whole message."""
    held: int
    """Values that were looked at: the first ones."""
    nbytes: int
    """Bytes of the values that were looked at."""
    fields: Fields
    magnitudes: Magnitudes
    spectra: tuple[Spectrum, ...]
    without_rank: int
    """Matrices of zeros, and those with NaN or infinity."""
    coded: dict[str, Coded]
    """Results by codec; a codec that does not take such values is not among them."""


@dataclass(frozen=True)
class Key:
    """What messages of a row have in common."""

    study: str
    scheme: str
    channel: str
    """Dimension, phase and kind; on a tensor grid its axis too."""
    operation: str
    dtype: str
    step: int


@dataclass
class Row:
    """The messages of a channel in a step."""

    key: Key
    messages: list[Anatomy] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes that were looked at."""
        return sum(message.nbytes for message in self.messages)

    @property
    def spectra(self) -> list[Spectrum]:
        """All matrices of the messages."""
        return [spectrum for message in self.messages for spectrum in message.spectra]

    def between(self, figure: Callable[[Anatomy], float | None]) -> Between | None:
        """A figure over the messages that have it."""
        found = [value for message in self.messages if (value := figure(message)) is not None]
        return Between.of(found) if found else None

    def of_codec(self, codec: str, figure: Callable[[Coded], float]) -> Between | None:
        """A figure of a codec over the messages that it takes."""
        return self.between(lambda message: figure(message.coded[codec]) if codec in message.coded else None)


@dataclass(frozen=True)
class Broken:
    """A lossless codec that did not give every bit back."""

    codec: str
    key: Key
    rank: int
    place: int


@dataclass(frozen=True)
class Findings:
    """The rows of all channels, and what is to be said of them as a whole."""

    rows: tuple[Row, ...]
    left_out: int
    """Messages that the runs had no room for."""
    cut: int
    """Messages of which the runs kept the first values only."""


def look_at(
    found: Sequence[Source],
    codecs: tuple[str, ...],
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> Findings:
    """Look at all messages of some files.

    Parameters
    ----------
    found
        The files.
    codecs
        Codecs that the messages go through.
    progress
        Called with each file: how many are done, how many there are, and its name.

    Raises
    ------
    UserError
        A file cannot be read.
    """
    rows: dict[Key, Row] = {}
    left_out = cut = 0
    for k, source in enumerate(found):
        progress(k, len(found), source.path.name)
        own, lost = samples(source)
        left_out += lost
        for sample in own:
            message = sample.message
            key = Key(source.study, source.scheme, message.channel, message.operation, message.dtype, sample.step)
            anatomy = anatomy_of(sample, codecs)
            cut += anatomy.held < anatomy.size
            rows.setdefault(key, Row(key)).messages.append(anatomy)
    order = sorted(rows, key=lambda key: (key.study, key.scheme, key.channel, key.operation, key.dtype, key.step))
    return Findings(tuple(rows[key] for key in order), left_out, cut)


def anatomy_of(sample: Sample, codecs: tuple[str, ...]) -> Anatomy:
    """The figures of a message."""
    x, message = sample.values, sample.message
    found = tuple(spectra(message, x))
    return Anatomy(
        sample.source.run,
        sample.source.tokens,
        sample.rank,
        message.place,
        message.size,
        x.size,
        x.nbytes,
        fields(x),
        magnitudes(x),
        found,
        sum(1 for _ in matrices(message, x)) - len(found),
        all_through(codecs, x),
    )


def broken(findings: Findings, lossless: Sequence[str]) -> list[Broken]:
    """Where a lossless codec did not give every bit back: a defect of the codec."""
    return [
        Broken(codec, row.key, message.rank, message.place)
        for row in findings.rows
        for message in row.messages
        for codec in lossless
        if codec in message.coded and not message.coded[codec].exact
    ]
