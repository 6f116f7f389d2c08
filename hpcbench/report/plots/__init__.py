"""The figures of a report: one file a figure, drawn when a format asks for it."""
