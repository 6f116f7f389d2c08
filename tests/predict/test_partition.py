"""Tests of the partitioner (compared with all possible divisions), its profile, and the planner for two buffers."""

import math
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random

import pytest

from hpcbench.predict.partition.chain import ChainLayer, Coding, LayerChain, LinkLevel, Setting
from hpcbench.predict.partition.reach import Reach, count_versions
from hpcbench.predict.partition.solve import find_best_cut, find_even_cut

CHAINS = 200


def compositions(total, most):
    """List all compositions of a number into at most `most` positive parts."""
    for parts in range(1, min(total, most) + 1):
        for bars in combinations(range(1, total), parts - 1):
            yield [b - a for a, b in zip((0, *bars), (*bars, total), strict=True)]


def runs(i, j):
    """List all ways to divide layers i to j - 1 into runs."""
    for lengths in compositions(j - i, j - i):
        ends = [i + sum(lengths[: k + 1]) for k in range(len(lengths))]
        yield list(zip([i, *ends], ends, strict=False))


def every_cut(chain, setting):
    """Return the shortest time over all divisions of layers and units at each level, using only the formulas."""
    layers = chain.layers

    def message(j, link):
        coding = setting.activations
        return 2 * layers[j - 1].out_bytes * (coding.ratio / link.bytes_per_s + coding.codec_s)

    @cache
    def least(level, i, j, behind):
        link = setting.levels[level]
        best = math.inf
        for cut in runs(i, j):
            for units in compositions(link.units, len(cut)):
                if len(units) != len(cut):
                    continue
                slowest = max((message(start, link) for start, _ in cut[1:]), default=0.0)
                for k, ((start, stop), current) in enumerate(zip(cut, units, strict=True)):
                    after = sum(units[k + 1 :])
                    slowest = max(slowest, stage(level, start, stop, current, after, behind))
                best = min(best, slowest)
        return best

    def stage(level, i, j, current, after, behind):
        link, coding = setting.levels[level], setting.gradients
        weights = sum(layer.weight_bytes for layer in layers[i:j])
        sync = (
            setting.syncs * 2 * (current - 1) / current * weights * (coding.ratio / link.bytes_per_s + coding.codec_s)
        )
        if level:
            inside = math.prod(item.units for item in setting.levels[:level])
            return (
                max(least(level - 1, i, j, (after * inside + behind) / current), sync if current > 1 else 0.0) / current
            )
        if setting.memory_bytes is not None:
            versions = math.ceil((after + behind + current) / current - 1e-9)
            each = sum(layer.kept_bytes + layer.version_bytes for layer in layers[i:j])
            if versions * each + sum(layer.state_bytes for layer in layers[i:j]) > setting.memory_bytes:
                return math.inf
        return max(sum(layer.seconds for layer in layers[i:j]), sync if current > 1 else 0.0) / current

    return least(len(setting.levels) - 1, 0, len(layers), 0.0)


def drawn(number):
    """Draw a random chain of up to 8 layers, and levels with up to 6 ranks in total."""
    random = Random(number)
    few = random.randint(1, 3)
    kinds = [ChainLayer(*(random.uniform(0.5, 5.0) for _ in range(6))) for _ in range(few)]
    layers = [random.choice(kinds) for _ in range(random.randint(1, 8))]
    sizes = random.choice([(n,) for n in range(1, 7)] + [(2, 2), (2, 3), (3, 2), (1, 4), (4, 1)])
    levels = [LinkLevel(units, random.choice([0.5, 2.0, 20.0]) / (k + 1)) for k, units in enumerate(sizes)]
    codec = Coding(random.uniform(0.1, 1.0), random.choice([0.0, 0.3]))
    limit = random.choice([None, None, random.uniform(10, 60)])
    return LayerChain(layers), Setting(
        levels, random.choice([Coding(), codec]), codec, limit, random.choice([1.0, 0.25])
    )


@pytest.mark.parametrize("block", range(10))
def test_no_cut_is_better_than_the_one_found(block):
    impossible = 0
    for number in range(block * CHAINS // 10, (block + 1) * CHAINS // 10):
        chain, setting = drawn(number)
        result, least = find_best_cut(chain, setting), every_cut(chain, setting)
        assert result.seconds == pytest.approx(least, rel=1e-9), number
        impossible += math.isinf(least)
        if math.isfinite(least):
            assert [stage.first for stage in result.stages] == [0, *(stage.stop for stage in result.stages[:-1])]
            assert result.stages[-1].stop == len(chain)
            assert sum(stage.replicas for stage in result.stages) == setting.ranks
        else:
            assert result.stages == ()
    assert impossible < CHAINS // 20


def test_a_cut_fits_the_memory_just_where_the_reach_says():
    """For about half of the chains, no division fits. The other chains are divided optimally."""
    impossible = 0
    for number in range(300, 360):
        chain, setting = drawn(number)
        setting = replace(setting, memory_bytes=Random(number).uniform(5.0, 40.0))
        top, least = len(setting.levels) - 1, every_cut(chain, setting)
        reached = Reach(chain, setting).find_first(top, len(chain), setting.levels[top].units, 0.0)
        assert (reached > 0) == math.isinf(least), number
        assert find_best_cut(chain, setting).seconds == pytest.approx(least, rel=1e-9), number
        impossible += math.isinf(least)
    assert 10 < impossible < 50


def test_versions_count_the_micro_batches_between_a_stage_and_the_end():
    result = {places: count_versions(*places) for places in ((1, 0.0), (1, 3.0), (2, 3.0), (4, 1.0), (3, 3.0))}
    assert result == {(1, 0.0): 1, (1, 3.0): 4, (2, 3.0): 3, (4, 1.0): 2, (3, 3.0): 2}
    # the ranks behind a unit of many ranks may be a fraction, which is rounded up
    assert all(
        count_versions(current, quarters / 4 + more) == count_versions(current, math.ceil(quarters / 4) + more)
        for current in range(1, 9)
        for quarters in range(40)
        for more in range(3)
    )


def test_a_wrong_bound_would_be_seen(monkeypatch):
    """A bound excludes splits. A bound that is too tight would miss the best division of some chains."""
    from hpcbench.predict.partition import solve

    monkeypatch.setattr(solve, "_SLACK", 0.6)
    result = [
        (find_best_cut(chain, setting).seconds, every_cut(chain, setting)) for chain, setting in map(drawn, range(40))
    ]
    assert any(ours > least * (1 + 1e-9) for ours, least in result)


def test_even_cuts_equal_every_cut_of_that_kind():
    for number in range(60):
        chain, _ = drawn(number)
        random = Random(1000 + number)
        stages, replicas = random.randint(1, min(len(chain), 4)), random.randint(1, 3)
        link = LinkLevel(stages * replicas, random.choice([0.5, 2.0, 20.0]))
        setting = Setting([link], syncs=0.5)
        least = math.inf
        for cut in runs(0, len(chain)):
            if len(cut) == stages:
                times = [
                    max(chain.time_layers(i, j), chain.time_sums(i, j, replicas, link, setting)) / replicas
                    for i, j in cut
                ]
                times += [chain.time_boundary(i, link, setting) / replicas for i, _ in cut[1:]]
                least = min(least, max(times))
        result = find_even_cut(chain, setting, stages=stages, replicas=replicas)
        assert result.seconds == pytest.approx(least, rel=1e-12)
        assert [stage.replicas for stage in result.stages] == [replicas] * stages


def test_a_codec_moves_the_cut_where_the_link_is_slow():
    """Two layers that exchange many bytes stay together, unless a codec makes the message small."""
    chain = LayerChain([ChainLayer(1.0, out_bytes=4.0), ChainLayer(1.0, out_bytes=1.0), ChainLayer(1.0)])
    plain = find_best_cut(chain, Setting([LinkLevel(2, 4.0)]))
    coded = find_best_cut(chain, Setting([LinkLevel(2, 0.5)], Coding(0.25)))
    slow = find_best_cut(chain, Setting([LinkLevel(2, 4.0)], Coding(0.25, codec_s=1.0)))
    assert [stage.stop for stage in plain.stages if stage.stop < 3] in ([2], [])
    assert coded.seconds <= 2.0
    assert slow.seconds == pytest.approx(1.5), "a codec that costs more than the link: no boundary at all"


def test_the_word_auto_takes_layers_off_the_stage_with_the_head():
    from hpcbench.contract.layout import balance_stages
    from hpcbench.contract.training import Model
    from hpcbench.predict.workload import make_train

    train = make_train(global_batch=8, micro_batch=1, seq_len=64)
    for layers, vocab, parts in ((24, 50_000, 4), (24, 256, 4), (8, 200_000, 3), (5, 30_000, 5), (12, 30_000, 1)):
        model = Model(layers=layers, hidden=512, heads=8, vocab=vocab)
        head = vocab / (12 * 512) / (1 + 64 / (6 * 512))
        chain = LayerChain([ChainLayer(1.0)] * (layers - 1) + [ChainLayer(1.0 + head)])
        best = find_even_cut(chain, Setting([LinkLevel(parts, 1e9)]), stages=parts, replicas=1).seconds
        result = balance_stages(model, train, parts)
        assert len(result) == parts and sum(result) == layers and min(result) >= 1
        assert max([*result[:-1], result[-1] + head]) == pytest.approx(best)


STUDY = """study: cut
site: lassen
model: {layers: 24, hidden: 2048, heads: 16, vocab: 50432}
train: {steps: 20, warmup_steps: 2, global_batch: 64, micro_batch: 1, seq_len: 1024, precision: bf16, zero: 0, clip: 0}
layout: {tp: 1, pp: 8, stages: auto}
nodes: 4
matrix: {scheme: [baseline, naive-zfp8]}
"""


def test_predict_says_how_to_cut(tmp_path):
    import json

    from hpcbench.predict.command import make_document, predict_study

    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    result, about, machine = predict_study(path, site=None, measured=None, ranks=(), sets=(), partition=True)
    written = json.loads(json.dumps(make_document(result, about, machine)))
    for item, plans in zip(result, written["partition"], strict=True):
        layout = item.workload.layout
        assert len(layout.stages) == 8 and sum(layout.stages) == 24 and layout.stages[-1] < 3
        assert sum(replicas for _, replicas in plans["free"]) == plans["ranks"] == layout.ranks
        assert sum(layers for layers, _ in plans["free"]) == 24
        speeds = [even["samples_per_s"] for even in plans["even"]]
        assert speeds == sorted(speeds, reverse=True)
        assert all(even["pp"] * even["dp"] == layout.ranks for even in plans["even"])
        best = plans["two_buffers"]
        assert best["pp"] > 1 and best["pp"] * best["dp"] == layout.ranks and sum(best["stages"]) == 24
        assert 64 // best["micro_batch"] // best["dp"] >= best["pp"], "two versions are enough"
    assert "partition" not in make_document(*predict_study(path, site=None, measured=None, ranks=(), sets=()))
