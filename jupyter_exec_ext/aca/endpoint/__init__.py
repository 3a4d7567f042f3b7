"""The ACA sessions' protocol served on sessions of this server."""
