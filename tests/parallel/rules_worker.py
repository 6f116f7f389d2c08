"""Worker that prints the traffic of four ranks as JSON lines, for each setting and for schemes with limits."""

import json
from typing import Any

from runs import run_of
from zero_worker import CORPUS, WORLD, nodes

from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import list_live_traffic
from hpcbench.errors import UserError
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

QUIET = Progress(Wait.GIVE_WAY)
EXPERTS = Experts(count=4)
IDENTITY = NamedScheme(name="identity", algorithm="encoded", default="none")


def case(layout: Layout, scheme: NamedScheme = IDENTITY, **train: Any) -> Run:
    run = run_of("gpt2", layout, precision="fp32")
    settings = {"global_batch": 8, "micro_batch": 2, "overlap": False, "steps": 2, **train}
    return run.changed(scheme=scheme, train=run.train.changed(**settings))


def trained(run: Run) -> list[dict[str, Any]]:
    """Train for one step (two with 1-bit Adam), and return every active channel with its sums over all ranks."""
    trainer = Trainer(run, WORLD.Dup(), QUIET, CORPUS)
    for step in range(2 if run.train.freeze_step else 1):
        trainer.step(step)
    rows = [row.to_json() for row in trainer.traffic.report()]
    assert replicas_agree(trainer)
    return rows


def triples() -> None:
    """Compare `list_live_traffic` with the channels that sent messages."""
    onebit = {"zero": 0, "optimizer": "onebit-adam", "freeze_step": 1, "clip": 0.0}
    for layout, train in (
        (Layout(dp=2, pp=2), onebit),
        (Layout(dp=2, tp=2), {"zero": 3, "sequence_parallel": True}),
        (Layout(dp=2, tp=2), {"zero": 2}),
        (Layout(tp=2, pp=2), {"zero": 3}),
    ):
        run = case(layout, **train)
        result = [
            [row["dimension"], row["phase"], row["kind"]]
            for row in trained(run)
            if row["message_bytes"] and row["dimension"] != "EXACT"
        ]
        tell(test="triples", found=sorted(result), live=sorted(map(list, list_live_traffic(run.setting))))


def limited() -> None:
    """Train on two nodes of two ranks. Only dp spans the nodes, so only dp traffic is encoded."""
    rules = [Rule(codec="int8:256", min_bytes=1024, between_nodes=True)]
    limited = NamedScheme(name="limited", algorithm="encoded", default="none", rules=rules)
    identity = NamedScheme(name="identity", algorithm="two-shot", default="none")
    cases = [(limited, Layout(dp=2, tp=2)), (identity, Layout(dp=2, tp=2)), (limited, Layout(tp=2, pp=2))]
    for scheme, layout in (*cases, (limited, Layout(dp=4))):
        each_alone = 1e-6 if layout.dp == 2 else 0.1  # some of these buckets are below the threshold
        with nodes():
            rows = trained(case(layout, scheme, zero=3, bucket_mb=each_alone))
        tell(test="limited", case=[scheme.name, layout.dp, layout.pp], rows=rows)


def experts() -> None:
    """Train on four ranks with different experts. Each rank has one peer on its own node and two on the other node."""
    rules = [Rule(dimension="EP", codec="int8:256", between_nodes=True)]
    scheme = NamedScheme(name="experts", algorithm="encoded", default="none", rules=rules)
    run = case(Layout(dp=4, ep=4), scheme)
    run = run.changed(model=run.model.changed(experts=EXPERTS))
    part = run.train.micro_batch * EXPERTS.places(run.train.seq_len) * run.model.hidden
    with nodes():
        tell(test="experts", rows=trained(run), part=part)


def irregular() -> None:
    rules = [Rule(dimension="DP", codec="int8:256", between_nodes=True)]
    refusal = ""
    run = case(Layout(dp=4), NamedScheme(name="own", algorithm="encoded", default="none", rules=rules))
    topology_of = Topology.of
    Topology.of = lambda comm: Topology.by_label(comm.allgather(WORLD.rank // 3))  # type: ignore[method-assign]
    try:
        Trainer(run, WORLD.Dup(), QUIET, CORPUS)
    except UserError as error:
        refusal = str(error)
    finally:
        Topology.of = topology_of  # type: ignore[method-assign]
    everyone = WORLD.gather(refusal)
    tell(test="irregular", said=everyone)


def tell(**fields: Any) -> None:
    if WORLD.rank == 0:
        print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    triples()
    limited()
    experts()
    irregular()
