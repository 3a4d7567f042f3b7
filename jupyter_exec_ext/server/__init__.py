"""HTTP API: request handlers for Jupyter Server and, through `gateway`, for Kernel Gateway."""
