"""Check of jobs against site limits: nodes, walltime by node count, and number of jobs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.sites.site import Queue, Site
from hpcbench.contract.problems import show, suggest
from hpcbench.contract.text import count_noun
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.load import Loaded


@dataclass(frozen=True)
class Limits:
    """Queue and time limits of a job."""

    walltime: Duration | None
    """Walltime. None means no limit, which is possible only on the local site."""
    queue: str | None
    run_limit: Duration | None
    """Time limit of a run, if the study sets one."""
    stop_ahead: Duration
    """Time between the stop request and the limit of a run."""


def limits(run: ExpandedRun, site: Site) -> Limits:
    """Return the limits of a run's job, checked against the site's limits.

    Raises
    ------
    UserError
        The site does not allow the requested limits. The message contains the field, the queue, the queue's limit with
        its source, and the smallest changes that would satisfy the limit.
    """
    study = run.study
    walltime = _read(run, "walltime", study.walltime) or (Duration.parse(site.walltime) if site.walltime else None)
    run_limit = _read(run, "run_limit", study.run_limit)
    stop_ahead = _read(run, "stop_ahead", study.stop_ahead) or Duration(1)
    if walltime is not None:
        if run_limit is not None and run_limit > walltime:
            raise _wrong(run, "run_limit", f"{run_limit} is longer than the job's walltime, {walltime}: shorten it")
        if stop_ahead >= walltime:
            if "stop_ahead" in study.model_fields_set or walltime.seconds < 2:
                raise _wrong(
                    run, "stop_ahead", f"{stop_ahead} is not shorter than the job's walltime, {walltime}: shorten it"
                )
            stop_ahead = Duration(walltime.seconds // 2)  # the default is meant for jobs that run for hours
    if site.scheduler.kind == "local":
        return Limits(walltime, None, run_limit, stop_ahead)
    if walltime is None:
        raise _wrong(run, "walltime", f"is required on {site.site}: add it, for example 2h")
    queue = _queue(run, site)
    if queue in site.queues:
        _check(run, walltime, str(queue), site)
    return Limits(walltime, queue, run_limit, stop_ahead)


def check_number(queues: Sequence[str | None], loaded: Loaded, site: Site) -> None:
    """Raise an error if the jobs exceed a queue's limit on jobs per user."""
    if site.scheduler.kind == "local":
        return
    bounds = [(f"queue {name} of {site.site}", queue.max_submitted, queue.source, Counter(queues)[name])
              for name, queue in site.queues.items()]  # fmt: skip
    bounds.append((site.site, site.scheduler.max_submitted, None, len(queues)))
    for what, most, source, number in bounds:
        if most is not None and number > most:
            shared = "" if loaded.study.pairing == "allocation" else ", use `pairing: allocation`,"
            raise UserError(
                f"{loaded.document.where(('repeats',))}: {number} jobs, but {what} accepts at most {most} per "
                f"user{_cite(source)}: submit them in parts with --only{shared} or lower repeats"
            )


def longest(queue: Queue, nodes: int) -> Duration | None:
    """Return the maximum walltime of a queue for a number of nodes, or None if unknown."""
    texts = [queue.max_walltime, next((b.max_walltime for b in queue.bins if nodes <= b.max_nodes), None)]
    return min((Duration.parse(text) for text in texts if text), default=None)


def _queue(run: ExpandedRun, site: Site) -> str | None:
    names = list(site.queues)
    queue = run.study.queue or (names[0] if names else None)
    if queue is not None and names and queue not in names:
        near = suggest(queue, names)
        raise _wrong(run, "queue", f"{site.site} has no queue {show(queue)}{near}: use one of {', '.join(names)}")
    return queue


def _check(run: ExpandedRun, walltime: Duration, name: str, site: Site) -> None:
    queue, nodes = site.queues[name], run.size.nodes
    least, most, limit = queue.min_nodes or 1, queue.most_nodes, longest(queue, nodes)
    who = f"queue {name} of {site.site}"
    others = _others(walltime, nodes, name, site)
    if nodes < least or (most is not None and nodes > most):
        bound = f"at least {least}" if nodes < least else f"at most {most}"
        remedy = _either(f"use {bound}", *others)
        raise _wrong(run, "nodes", f"{nodes}: {who} allows {bound}{_cite(queue.source)}: {remedy}")
    if limit is None or walltime <= limit:
        return
    up_to = next((f" for jobs of up to {b.max_nodes} nodes" for b in queue.bins if nodes <= b.max_nodes), "")
    enough = (b for b in _wider(queue, nodes) if walltime <= b[1])
    more = [f"use {least} nodes or more for up to {allowed}" for least, allowed in enough][:1]
    remedy = _either(f"shorten it to {limit}", *more, *others)
    raise _wrong(
        run,
        "walltime",
        f"{walltime} at {count_noun(nodes, 'node')}: {who} allows {limit}{up_to}{_cite(queue.source)}: {remedy}",
    )


def _wider(queue: Queue, nodes: int) -> list[tuple[int, Duration]]:
    """Return the next larger node counts at which the walltime limit changes, with the limit at each count."""
    counts = [b.max_nodes + 1 for b in queue.bins[:-1] if b.max_nodes >= nodes]
    limits_by_count = [(count, longest(queue, count)) for count in counts]
    return [(count, allowed) for count, allowed in limits_by_count if allowed is not None]


def _others(walltime: Duration, nodes: int, name: str, site: Site) -> list[str]:
    """Suggest queues whose known limits allow the unchanged job."""
    remedies = []
    for other, queue in site.queues.items():
        limit, most = longest(queue, nodes), queue.most_nodes
        fits = (queue.min_nodes or 1) <= nodes and (most is None or nodes <= most)
        if other != name and fits and limit is not None and walltime <= limit:
            remedies.append(f"use queue {other}")
    return remedies[:2]


def _either(*ways: str) -> str:
    return ", or ".join(ways)


def _cite(source: str | None) -> str:
    return f" ({source})" if source else ""


def _read(run: ExpandedRun, name: str, text: str | None) -> Duration | None:
    try:
        return None if text is None else Duration.parse(text)
    except ValueError as error:
        raise _wrong(run, name, str(error)) from None


def _wrong(run: ExpandedRun, name: str, problem: str) -> UserError:
    return UserError(f"{run.where((name,))}: {name}: {problem}")
