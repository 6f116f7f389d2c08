"""Training text of the tests. Ranks forked by the server have already loaded the text."""

from functools import cache

from hpcbench.contract.training import Data
from hpcbench.train import text
from hpcbench.train.corpus import Corpus

DATA = Data(source="stdlib", valid_fraction=0.1)


@cache
def corpus() -> Corpus:
    return text.load(DATA, 16)
