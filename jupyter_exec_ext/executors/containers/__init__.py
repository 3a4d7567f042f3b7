"""Servers in containers: the engine, its image, the options and network of a container, and its end."""
