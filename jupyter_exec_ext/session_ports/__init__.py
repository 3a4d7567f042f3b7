"""Ports out of a session: HTTP and WebSocket to programs that run beside a kernel."""
