"""Adapters to agent frameworks: a module for each, which imports its framework. Nothing here imports them."""
