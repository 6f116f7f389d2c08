"""Runs of models with grouped queries, gated MLPs, RMSNorm, no biases, or a separate width for experts."""

from collections.abc import Iterator

from cases import NAMED, NEOX, Case, Comparison, one_process

from hpcbench.contract.experts import Experts

LLAMA = NEOX.changed(
    name="llama",
    kv_heads=4,
    mlp_width=48,
    activation="swiglu",
    norm="rmsnorm",
    bias=False,
    rotary_fraction=1.0,
    rotary_base=500.0,
    parallel_residual=False,
    layers=2,
)
NEMOTRON = LLAMA.changed(
    name="nemotron", kv_heads=2, mlp_width=None, activation="squared-relu", norm="layernorm", rotary_fraction=0.5
)
MIXTRAL = LLAMA.changed(
    name="mixtral",
    experts=Experts(count=4, top=2, capacity=1.0, first=1, width=24, shared=True, shared_width=40),
    layers=3,
)
OPEN = MIXTRAL.changed(name="open", experts=MIXTRAL.experts and MIXTRAL.experts.changed(drop="none"))
"""A model whose experts drop no tokens, so the number of bytes depends on the text."""
WIDE = LLAMA.changed(name="wide", bias=True, heads=4, kv_heads=1, mlp_width=160)
"""A model with biases and a single key-value head, as in multi-query attention."""

SHAPES = {model.name: model for model in (LLAMA, NEMOTRON, MIXTRAL, OPEN, WIDE)}
NAMED["model"].update(SHAPES)

SHARED: Case = {"train.seq_len": 24, "train.eval_samples": 8}
"""Sample settings, which the single-process reference uses as well."""

CP = "layout.cp+layout.context"
BATCH: Case = {"train.global_batch": 8, "train.micro_batch": 4}
PLACES: dict[str, list[Case]] = {
    "llama": [
        {"layout.tp": 2, "layout.dp": 2, "train.zero": 2},
        {"layout.tp": 4, "train.sequence_parallel": True, "train.recompute": "selective"},
        {"layout.pp": 2, "layout.dp": 2, "train.zero": 3, "train.recompute": "full"},
        {CP: (2, "ring"), "layout.tp": 2},
        {CP: (2, "rsa"), "layout.tp": 2},
        {CP: (4, "ulysses")},
        {CP: (2, "ulysses"), "layout.dp": 2, "train.overlap": False},
        {"layout.tp": 4, "layout.tensor": "2d", **BATCH},
        {"layout.tp": 8, "layout.tensor": "2.5d", "layout.depth": 2, **BATCH},
        {"layout.tp": 8, "layout.tensor": "3d", **BATCH},
        {"layout.tp": 4, "layout.tensor": "2d", CP: (2, "ring"), **BATCH},
        {"layout.dp": 2, "layout.tp": 2, "train.offload": True},
    ],
    "nemotron": [
        {"layout.tp": 2, "train.sequence_parallel": True, CP: (2, "ring")},
        {"layout.tp": 8, "layout.tensor": "3d", **BATCH},
        {"layout.dp": 2, "layout.tp": 2, "layout.pp": 2, "train.zero": 1},
    ],
    "mixtral": [
        {"layout.dp": 2, "layout.ep": 2, "layout.tp": 2, "train.zero": 3},
        {"layout.tp": 4, "train.recompute": "full"},
    ],
    "open": [
        {"layout.dp": 2, "layout.ep": 2},
        {"layout.dp": 2, "layout.ep": 2, CP: (2, "ring")},
    ],
    "wide": [
        {CP: (4, "ring"), "train.zero": 0},
        {"layout.dp": 2, "layout.pp": 2, "train.zero": 3},
    ],
}


def make_comparison(model: str, place: Case, fault: str | None = None) -> Comparison:
    settings = {"model": model, **SHARED, **place}
    return Comparison(settings, {**one_process(settings), **SHARED}, fault)


def first_shapes() -> Iterator[Comparison]:
    """Compare every model in its first layout with one process."""
    yield from (make_comparison(model, places[0]) for model, places in PLACES.items())


def other_shapes() -> Iterator[Comparison]:
    """Yield every model in its other layouts."""
    for model, places in PLACES.items():
        yield from (make_comparison(model, place) for place in places[1:])


FAULTY: dict[str, tuple[str, Case, str]] = {
    "keys_of_another_group": ("llama", {CP: (2, "ring")}, "loss"),
    "gradient_of_one_query_of_a_group": ("llama", {CP: (2, "ring")}, "gradients"),
    "gates_in_one_half": ("llama", {"layout.tp": 2}, "loss"),
    "squares_of_own_features": ("llama", {"layout.tp": 4, "layout.tensor": "2d", **BATCH}, "loss"),
    "gelu_in_experts": ("open", {"layout.dp": 2, "layout.ep": 2}, "loss"),
}
"""For each planted fault, a model and a layout that expose it, and the quantity that differs."""


def faulty_shapes() -> Iterator[Comparison]:
    """Yield each run without a fault, and with its planted fault."""
    sound = {comparison.name for comparison in first_shapes()}
    for name, (model, place, _) in FAULTY.items():
        plain = make_comparison(model, place)
        if plain.name not in sound:
            sound.add(plain.name)
            yield plain
        yield make_comparison(model, place, name)


def few() -> Iterator[Comparison]:
    """Yield the cases of `make test`."""
    yield from first_shapes()
    yield from faulty_shapes()


SUITES = {suite.__name__: suite for suite in (few, other_shapes)}
