"""Adapters to agent frameworks: one module for each, which imports its framework. No other module imports them."""
