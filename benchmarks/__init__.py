"""Measurements beside named peers, as ratios in one interleaved run. Never timed unit tests."""
