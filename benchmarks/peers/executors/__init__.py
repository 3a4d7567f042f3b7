"""Executors, each in the environment of its framework; started by ``benchmarks.executors`` and not imported by it."""
