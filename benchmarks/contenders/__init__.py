"""What is measured, each as a script for the Python that has it; `benchmarks.peers.Worker` is the other end."""
