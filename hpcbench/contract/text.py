"""Printable forms of text from files and other programs, and of numbers."""


def make_printable(text: str, limit: int = 300) -> str:
    """Return the text as one line for a terminal. Control characters become spaces, and long text is truncated."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 4]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 job`` or ``3 jobs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
