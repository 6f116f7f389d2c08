"""Reader for traces of torch.profiler (Kineto), optionally gzip-compressed, with bounded memory."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

import ijson  # memory use does not grow with the size of the file

from hpcbench.errors import UserError

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_MOST_HEADER = 16 << 20
"""Maximum size in bytes of the header before the events."""
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*([0-9]+)')

Progress = Callable[[int, int], object]
"""Callback that receives the number of bytes read and the file size."""


class TraceFile:
    """A trace file. The header is complete only after all events have been read.

    Parameters
    ----------
    path
        JSON file written by ``torch.profiler.profile.export_chrome_trace``, optionally gzip-compressed.
    progress
        Callback that is called periodically.
    """

    def __init__(self, path: Path, progress: Progress = lambda done, size: None) -> None:
        self.path, self._progress = path, progress
        self.distributed: dict[str, Any] = {}
        """Rank, number of ranks, backend and process groups. The dictionary is empty in older traces."""
        self.base_us = 0.0
        """Base time of the events in microseconds since 1970, or 0 if event times are absolute."""

    def read_events(self) -> Iterator[dict[str, Any]]:
        """Yield the events in file order.

        Raises
        ------
        UserError
            The file cannot be read, is damaged, ends too early or is not a trace.
        """
        events = ijson.sendable_list()
        parser = ijson.items_coro(events, "traceEvents.item", use_float=True)
        head, before, begun, n_events = b"", b"", False, 0
        try:
            for chunk in self._read_chunks():
                if not begun:
                    head += chunk
                    begun = self._read_header(head)
                if base := _BASE.search(before[-64:] + chunk):
                    self.base_us = int(base[1]) / 1000
                before = chunk
                parser.send(chunk)
                n_events += len(events)
                yield from (event for event in events if isinstance(event, dict))
                del events[:]
            parser.close()
        except ijson.IncompleteJSONError:
            raise UserError(f"{self.path}: {_explain_end(n_events)}") from None
        except (ijson.JSONError, UnicodeDecodeError) as error:
            fault = " ".join(str(error).split())[:60]
            raise UserError(f"{self.path}: is not JSON ({fault}): give a trace of torch.profiler") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(f"{self.path}: the gzip data is damaged ({error}): copy the file again") from None
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror or error}") from None
        if not begun:
            raise UserError(
                f"{self.path}: contains no 'traceEvents': give a trace of torch.profiler (export_chrome_trace)"
            )

    def _read_chunks(self) -> Iterator[bytes]:
        size = self.path.stat().st_size
        if not size:
            raise UserError(f"{self.path}: the file is empty: export the trace again")
        with self.path.open("rb") as raw:
            is_gzip = raw.read(2) == _GZIP
            raw.seek(0)
            with cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if is_gzip else nullcontext(raw) as stream:
                while chunk := stream.read(_CHUNK):
                    self._progress(raw.tell(), size)
                    yield chunk

    def _read_header(self, head: bytes) -> bool:
        """Parse the header before the events. Return whether the events have begun."""
        events = _EVENTS.search(head)
        if events is None:
            if len(head) > _MOST_HEADER:
                raise UserError(
                    f"{self.path}: contains no 'traceEvents' in the first 16 MiB: give a trace of torch.profiler"
                )
            return False
        members = head[: events.start()].strip().rstrip(b",") + b"}"
        try:
            distributed = json.loads(members).get("distributedInfo")
        except ValueError:
            distributed = None
        self.distributed = distributed if isinstance(distributed, dict) else {}
        return True


def _explain_end(n_events: int) -> str:
    return (
        f"the file is truncated or damaged after {n_events} events: export the trace again, and check that the "
        "program is not stopped while writing the trace"
        if n_events
        else "the file ends before its first event, or is not JSON: give a trace of torch.profiler"
    )
