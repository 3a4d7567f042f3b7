"""SQLite store: sessions, executions, tokens and the audit trail, with a file of events for each execution."""
