"""Client logic for Jupyter servers without `exec/v1`: the kernels API and its WebSocket."""
