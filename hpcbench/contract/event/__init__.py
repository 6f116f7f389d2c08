"""The classes of a log's events, with one file per topic. `hpcbench.contract.events` exports all of them."""
