"""Audit records: their digest chain, and their export as Jupyter events, Prometheus metrics and text."""
