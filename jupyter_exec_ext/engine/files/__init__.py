"""Files of sessions: working directories, confinement, uploads, quotas, changes."""
