"""Linear layers on a tensor grid, for all modes."""

from itertools import pairwise

from torch import Tensor, nn

from hpcbench.contract.grid import ActivationCuts
from hpcbench.parallel.grid.gathered import GatheredProduct
from hpcbench.parallel.grid.lines import Lines, check, laid
from hpcbench.parallel.grid.moves import Coming, gather
from hpcbench.parallel.grid.summa import StreamedProduct


class GridLinear(nn.Module):
    """A linear layer. The axes that cut the output columns also cut the bias.

    Parameters
    ----------
    plain
        The layer before parallelization.
    word
        Role of the layer in the model's table: ``column``, ``row`` or ``head``.
    lines
        Lines of ranks along the axes of the grid.
    """

    def __init__(self, plain: nn.Linear, word: str, lines: Lines) -> None:
        super().__init__()
        self._word, self._lines, grid = word, lines, lines.grid
        self._product = grid.products[word]
        self.weight = lines.part(plain.weight, grid.cuts(word, "weight"))
        self.bias = None if plain.bias is None else lines.part(plain.bias, grid.cuts(word, "bias"))
        self._coming: Coming | None = None
        self._next: list[GridLinear] = []  # in a list, because PyTorch would register a module attribute as a submodule

    def followed_by(self, layer: "GridLinear") -> None:
        """Make this layer gather the weight of the given next layer while it computes its own product."""
        self._next = [layer]

    def forward(self, x: Tensor) -> Tensor:
        """Return the rank's block of the layer output."""
        product = self._product
        check(x, ActivationCuts(product.x["M"], product.x["K"]), self._word)
        if product.streamed:
            y: Tensor = StreamedProduct.apply(x, self.weight, product, self._lines)  # type: ignore[no-untyped-call]
        else:
            coming, self._coming = self._coming or self._gathered(), None
            for layer in self._next:
                layer._coming = layer._gathered()
            y = GatheredProduct.apply(x, self.weight, coming, product, self._lines)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            y = y + self.bias
        return laid(y, ActivationCuts(product.y["M"], product.y["N"]))

    def _gathered(self) -> Coming:
        return gather(self.weight, self._lines.there(self._product.forward.right))


def in_turn(layers: list[GridLinear]) -> None:
    """Link each layer to the next layer if weights are gathered."""
    for layer, following in pairwise(layers):
        if layer._product.streamed is None:
            layer.followed_by(following)
