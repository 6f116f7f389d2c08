"""Presentation of results: documents of tables, sentences and figures, with a writer for each format."""
