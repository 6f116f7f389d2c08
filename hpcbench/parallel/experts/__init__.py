"""Mixture-of-experts layers: routing of tokens, and exchange of tokens between ranks."""
