"""Effects of codecs on the loss and on the weight update, measured during an uncompressed run."""
