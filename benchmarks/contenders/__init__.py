"""Contenders: a script for each measured tool, which `benchmarks.peers.Worker` runs in that tool's environment."""
