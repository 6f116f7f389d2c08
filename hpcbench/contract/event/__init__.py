"""The classes of a log's events, in files by what they tell of. `hpcbench.contract.events` has all of them."""
