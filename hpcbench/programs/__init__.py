"""Programs of others, run with their messages counted or compressed through PyTorch's own collectives."""
