"""The audit trail's way out of this process: Jupyter events and Prometheus metrics, made from committed records."""
