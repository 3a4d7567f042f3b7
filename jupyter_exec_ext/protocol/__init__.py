"""Pure translation: kernel messages, output events, JSON and event streams into one another.

Standard library only and no I/O, so that the server and a light client share one understanding of every message.
"""
