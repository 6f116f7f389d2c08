"""Message samples: messages of some steps, saved as they are before any codec."""
