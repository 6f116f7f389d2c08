"""What the messages of a run are like: the figures behind "gradients are of low rank, activations are not"."""
