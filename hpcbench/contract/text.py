"""Printable form of text from files and other programs."""


def make_printable(text: str, limit: int = 300) -> str:
    """Return the text as one line for a terminal. Control characters become spaces, and long text is truncated."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 4]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
