"""Context parallelism: ranks share the positions of each sample, and attention works over all of them."""
