"""Tests that studies beyond a queue's limits are refused, with the limit, its source and the smallest changes."""

from pathlib import Path
from typing import Any

import pytest
from launch_cases import site

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.sites.limits import Limits, check_number, limits
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import Loaded, load_study

STUDY = """\
study: s
model: {layers: 2, hidden: 64, heads: 4}
train: {steps: 20, global_batch: 1000000, micro_batch: 1}
matrix: {scheme: [baseline]}
repeats: 3
"""


def runs(directory: Path, where: Site, text: str) -> tuple[list[ExpandedRun], Loaded]:
    (directory / "s.yaml").write_text(STUDY + text, encoding="utf-8")
    loaded = load_study(directory / "s.yaml", [])
    data = loaded.study.model_dump(exclude_unset=True)
    nodes = data.get("nodes", 1)
    per_node = where.capacity.ranks_per_node or where.capacity.slots
    loaded = load_study(directory / "s.yaml", [f"train.global_batch={nodes * per_node}"])
    return expand(loaded, where.capacity, offer(where)), loaded


def limits_of(directory: Path, where: Site | str, text: str) -> Limits:
    where = load_site(where)[0] if isinstance(where, str) else where
    return limits(runs(directory, where, text)[0][0], where)


def refused(directory: Path, where: Site | str, text: str) -> str:
    with pytest.raises(UserError) as caught:
        limits_of(directory, where, text)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{directory}/", "")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("summit", "nodes: 45\nwalltime: 2h1m\n",
         "s.yaml:7: walltime: 2h1m at 45 nodes: queue batch of summit allows 2h for jobs of up to 45 nodes "
         "(olcf-user-docs systems/summit_user_guide.rst, queue policies): shorten it to 2h, or use 46 nodes or more "
         "for up to 6h"),
        ("summit", "nodes: 46\nwalltime: 6h1s\n", "shorten it to 6h, or use 92 nodes or more for up to 12h"),
        ("summit", "nodes: 1\nwalltime: 7h\n", "shorten it to 2h, or use 92 nodes or more for up to 12h"),
        ("summit", "nodes: 45\nwalltime: 25h\n", "allows 2h for jobs of up to 45 nodes"),
        ("summit", "nodes: 4609\nwalltime: 2h\n",
         "s.yaml:6: nodes: 4609: queue batch of summit allows at most 4608 (olcf-user-docs"),
        ("summit", "nodes: 1\nwalltime: 1h\nqueue: killabel\n",
         "s.yaml:8: queue: summit has no queue 'killabel': use one of batch, debug"),
        ("frontier", "nodes: 184\nwalltime: 12h1m\n", "shorten it to 12h"),
        ("frontier", "nodes: 9408\nwalltime: 12h1m\n", "shorten it to 12h"),
        ("frontier", "nodes: 64\nwalltime: 12h1m\n", "shorten it to 2h, or use queue extended"),
        ("juwels-booster", "nodes: 5\nwalltime: 1h\nqueue: develbooster\n",
         "s.yaml:6: nodes: 5: queue develbooster of juwels-booster allows at most 4 (public job scripts; not read at "
         "JSC): use at most 4"),
        ("vista", "nodes: 9\nwalltime: 1h\nqueue: gh-dev\n", "use at most 8, or use queue gh"),
        ("vista", "nodes: 1\nwalltime: 3h\nqueue: gh-dev\n", "shorten it to 2h, or use queue gh"),
        ("vista", "run_limit: 3h\n", "s.yaml:6: run_limit: 3h is longer than the job's walltime, 2h: shorten it"),
        ("vista", "run_limit: 1:30\n", "run_limit: 1:30 may mean 1 hours 30 minutes (LSF)"),
        ("vista", "stop_ahead: 0m\n", "s.yaml:6: stop_ahead: a duration is a whole number of seconds above zero"),
        ("vista", "stop_ahead: 2h\n", "stop_ahead: 2h is not shorter than the job's walltime, 2h: shorten it"),
        ("local", "run_limit: 2d\n", "run_limit: 2d is longer than the job's walltime, 1d"),
    ],
)  # fmt: skip
def test_a_study_that_its_queue_would_reject(tmp_path: Path, name: str, text: str, says: str) -> None:
    assert says in refused(tmp_path, name, text)


def test_only_sufficient_changes_are_offered(tmp_path: Path) -> None:
    """No queue of Frontier allows 12h1m except extended, which allows at most 64 nodes."""
    message = refused(tmp_path, "frontier", "nodes: 184\nwalltime: 12h1m\n")
    assert message.endswith(": shorten it to 12h")
    assert refused(tmp_path, "summit", "nodes: 45\nwalltime: 25h\n").endswith(": shorten it to 2h")


@pytest.mark.parametrize(
    ("name", "text", "walltime", "queue"),
    [
        ("summit", "nodes: 45\nwalltime: 2h\n", "2h", "batch"),
        ("summit", "nodes: 46\nwalltime: 6h\n", "6h", "batch"),
        ("summit", "nodes: 4608\nwalltime: 24h\n", "1d", "batch"),
        ("frontier", "nodes: 9408\nwalltime: 12h\n", "12h", "batch"),
        ("frontier", "nodes: 64\nwalltime: 24h\nqueue: extended\n", "1d", "extended"),
        ("perlmutter", "nodes: 3000\nwalltime: 48h\n", "2d", "regular"),  # its limits are unknown
        ("slurm-cluster", "", "2h", None),
        ("slurm-cluster", "queue: theirs\n", "2h", "theirs"),
        ("local", "walltime: 90d\n", "90d", None),
    ],
)
def test_a_study_within_its_limits(tmp_path: Path, name: str, text: str, walltime: str, queue: str | None) -> None:
    allowed = limits_of(tmp_path, name, text)
    assert (str(allowed.walltime), allowed.queue) == (walltime, queue)


def test_least_nodes_and_the_queue_for_fewer(tmp_path: Path) -> None:
    queues: dict[str, Any] = {"large": {"min_nodes": 65, "max_nodes": 256, "max_walltime": "48h"},
                              "normal": {"max_nodes": 64, "max_walltime": "48h"}}  # fmt: skip
    where = site("vista", queues=queues)
    message = refused(tmp_path, where, "nodes: 2\n")
    assert (
        message == "s.yaml:6: nodes: 2: queue large of vista allows at least 65: use at least 65, or use queue normal"
    )


def test_times_within_a_job(tmp_path: Path) -> None:
    allowed = limits_of(tmp_path, "vista", "walltime: 1h\nrun_limit: 1h\nstop_ahead: 5m\n")
    assert (allowed.run_limit, allowed.stop_ahead) == (Duration(3600), Duration(300))
    # a default is not an error: two minutes, or half of a short job's time
    assert limits_of(tmp_path, "vista", "walltime: 90s\n").stop_ahead == Duration(45)
    assert limits_of(tmp_path, "vista", "").stop_ahead == Duration(120)


@pytest.mark.parametrize(
    ("name", "queues", "says"),
    [
        ("summit", ["batch"] * 101, "101 jobs, but queue batch of summit accepts at most 100 per user (olcf-user-docs"),
        ("summit", ["debug"] * 2, "2 jobs, but queue debug of summit accepts at most 1 per user"),
        (
            "frontier",
            ["batch"] * 60 + ["extended"] * 41,
            "101 jobs, but frontier accepts at most 100 per user: submit them in parts",
        ),
        ("vista", ["gh"] * 41, "41 jobs, but queue gh of vista accepts at most 40 per user"),
        ("summit", ["batch"] * 100 + ["debug"], None),
        ("frontier", ["batch"] * 100, None),
        ("local", [None] * 5000, None),
    ],
)
def test_more_jobs_than_a_user_may_have(tmp_path: Path, name: str, queues: list[str | None], says: str | None) -> None:
    where = load_site(name)[0]
    _, loaded = runs(tmp_path, where, "")
    if says is None:
        check_number(queues, loaded, where)
        return
    with pytest.raises(UserError) as caught:
        check_number(queues, loaded, where)
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml:5: ") and says in str(caught.value)
    assert "--only" in str(caught.value)
