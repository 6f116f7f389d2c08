"""Users' PyTorch programs, with their messages counted or compressed by intercepting PyTorch's collectives."""
