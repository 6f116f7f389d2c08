"""Settings of mixture-of-experts layers, and calculations shared by the engine and the predictions."""

import math
from fractions import Fraction
from typing import Literal

from pydantic import Field, model_validator

from hpcbench.contract.section import Count, Section

Drop = Literal["position", "probability", "none"]


class Experts(Section):
    """Mixture-of-experts layers. A router selects a few experts for each token."""

    count: Count = Field(description="Number of experts per layer.")
    every: Count = Field(1, description="Every n-th layer has experts: 2 gives them to layers 2, 4, 6 ...")
    first: int = Field(0, ge=0, description="Number of layers at the start that have an MLP instead of experts.")
    width: Count | None = Field(None, description="Intermediate size of an expert; the MLP's by default.")
    top: Count = Field(
        1, description="Number of experts per token. The router selects those with the highest probability."
    )
    drop: Drop = Field(
        "position",
        description="Tokens that an expert over its capacity drops: those at later positions (position) or of lower "
        "probability (probability). none: experts drop no tokens, and ranks exchange counts first.",
    )
    capacity: float = Field(
        1.25,
        gt=0,
        le=1000,
        description="Capacity of an expert for the tokens of a sample, as a multiple of the mean: "
        "max(min_capacity, ceil(top x seq_len / count x capacity)).",
    )
    min_capacity: Count = Field(4, description="Minimum capacity of an expert for the tokens of a sample.")
    shared: bool = Field(False, description="Add an expert that processes every token.")
    shared_width: Count | None = Field(
        None,
        description="Intermediate size of the shared expert; an expert's by default. For n shared experts, multiply it "
        "by n.",
    )
    balance: float = Field(0.01, ge=0, description="Weight of the load-balancing loss.")
    z_loss: float = Field(0.001, ge=0, description="Weight of the z-loss, which keeps the router's logits small.")

    @model_validator(mode="after")
    def _top_of_all(self) -> "Experts":
        if self.top > self.count:
            raise ValueError(f"top {self.top} is more than count {self.count}: lower top")
        if self.shared_width is not None and not self.shared:
            raise ValueError(
                "shared_width is the width of a shared expert: set shared to true, or leave shared_width out"
            )
        return self

    def places(self, tokens: int) -> int:
        """Return the capacity of an expert for one sample of `tokens` tokens.

        A token is sent to an expert at most once, so the capacity is at most `tokens`.
        """
        mean = Fraction(self.top * tokens, self.count)
        wanted = math.ceil(mean * Fraction(str(self.capacity)))
        return min(max(self.min_capacity, wanted), tokens)

    def in_layer(self, layer: int) -> bool:
        """Return whether a layer (counted from 0) contains experts."""
        return layer >= self.first and (layer + 1) % self.every == 0

    def layers_of(self, layers: range) -> list[int]:
        """Return the layers that contain experts."""
        return [layer for layer in layers if self.in_layer(layer)]
