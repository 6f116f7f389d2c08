"""The classes of a log's events, in one file for each subject. `hpcbench.contract.events` exports all of them."""
