"""Live sessions: queue, sessions by name, fresh runs, waiting limits, notebook export."""
