"""Prefixes that launchers and loggers add to lines."""

import re

_ANSI = re.compile(r"\x1b\[[0-9;:?]{0,40}[@-~]")
_CLOCK = r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_DATE = r"(?:[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}|[0-9]{1,2}/[0-9]{1,2}(?:/[0-9]{2,4})?)"
_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_PREFIXES = (
    # Open MPI and Spectrum MPI, --tag-output: [1,0]<stdout>: and, since PRRTE, [prterun-node-77@1,0]<stdout>:
    r"\[[^\[\]\s,]{0,100},(?P<mpi>[0-9]{1,7})\]<std(?:out|err|diag)>: ?",
    # torchrun: [default0]: and [rank3]: ; Hydra -prepend-rank and DeepSpeed: [0] and [Rank 0]
    r"\[(?:[A-Za-z_]{1,30} ?)?(?P<tag>[0-9]{1,7})\]:? ?",
    # srun --label and jsrun --stdio_mode prepended: 0:
    r"(?P<label>[0-9]{1,7}): ",
    # Ray
    r"\([A-Za-z_]\w{0,60} pid=[0-9]{1,10}(?:, ip=[0-9.]{7,15})?\) ?",
    # pdsh: a node name contains a digit or a dot, and a field does not
    r"(?=[\w-]{0,60}[0-9.])[A-Za-z][\w.-]{0,80}: ",
    rf"\[?{_DATE}[ T]{_CLOCK}(?:Z|[-+][0-9]{{2}}:?[0-9]{{2}})?\]?:? ?",
    rf"[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_CLOCK} [0-9]{{4}} ?",
    # glog and absl
    rf"[IWEF][0-9]{{4}} {_CLOCK} +[0-9]{{1,10}} [\w.]{{1,80}}:[0-9]{{1,6}}\] ",
    rf"\[?{_LEVEL}(?:\|[^\[\]\s]{{0,120}})?\]?:? ?(?:- )?",
    r"\[[\w.]{1,80}\.py:[0-9]{1,6}:\w{1,60}\] ?",
    r"\[titan\] |root - |- ",
)
_PREFIX = re.compile(r"[ \t]{0,40}(?:" + "|".join(_PREFIXES) + ")")
_MOST = 12


def plain(text: str) -> str:
    """Remove terminal color codes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def split(text: str) -> tuple[int | None, str]:
    """Return the rank that a line's prefixes contain, if any, and the text after the prefixes."""
    rank: int | None = None
    at = 0
    for _ in range(_MOST):
        matched = _PREFIX.match(text, at)
        if matched is None:
            break
        at = matched.end()
        rank_text = matched["mpi"] or matched["tag"] or matched["label"]
        if rank is None and rank_text is not None:
            rank = int(rank_text)
    return rank, text[at:]
