"""Presentation of results: a document of tables, sentences and figures, and a writer for each format."""
