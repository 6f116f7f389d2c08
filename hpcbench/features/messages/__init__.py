"""Message samples: uncompressed messages saved in selected steps."""
