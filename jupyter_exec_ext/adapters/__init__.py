"""Adapters: one module for each agent framework, which has to be installed; see ``docs/frameworks.md``."""
