"""Rights that operations need: shared by the route table and MCP's tools."""

from __future__ import annotations

from .gate import Access

READ = Access(None, "read")
READ_SESSIONS = Access("sessions:read", "read")
DELETE_SESSIONS = Access("sessions:delete", "write")
CHECKPOINT = Access("sessions:checkpoint", "execute")
BRANCH = Access("sessions:checkpoint", "execute", and_scope="sessions:create")
RUN_CODE = Access("executions:create", "execute")
READ_EXECUTIONS = Access("executions:read", "execute")
CONTROL_EXECUTIONS = Access("executions:control", "execute")
READ_FILES = Access("files:read", "read", "contents")
WRITE_FILES = Access("files:write", "write", "contents")
READ_TOKENS = Access("tokens:create", "read", "tokens")
WRITE_TOKENS = Access("tokens:create", "write", "tokens")
READ_PORTS = Access("ports:use", "read")
USE_PORTS = Access("ports:use", "execute")
# A token must not approve its own code.
APPROVE = Access(None, "execute", owner_only=True)
GRANT = Access(None, "execute", owner_only=True)
READ_SECRETS = Access(None, "read", "tokens", owner_only=True)
WRITE_SECRETS = Access(None, "write", "tokens", owner_only=True)
CREATE_SESSION = Access("sessions:create", "write", or_scope="kernels:attach")
# Jupyter Server asks its authorizer the same for its own status and its shutdown.
READ_LOAD = Access("pool:read", "read", "server")
DRAIN = Access(None, "write", "server", owner_only=True)
