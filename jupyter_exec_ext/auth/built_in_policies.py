"""Policies that every server has, unless its `policy_file` has others."""

from __future__ import annotations

from .policy import Policy

BUILT_IN: dict[str, Policy] = {
    "default": Policy(),
    "trusted": Policy(
        name="trusted",
        max_sessions=None,
        max_open_executions=None,
        max_executions_per_minute=None,
        max_streams=None,
        max_ports=None,
        max_checkpoints=None,
        max_execution_seconds=None,
        max_queue_seconds=None,
        max_output_bytes=None,
        max_code_bytes=None,
        max_file_bytes=None,
        max_session_bytes=None,
        max_session_files=None,
        max_idle_seconds=None,
        max_session_seconds=None,
        attach=True,
        allow_comms=True,
    ),
    "restricted": Policy(
        name="restricted",
        isolation="sandbox",
        max_upload_bytes=64 * 1024**2,
        max_sessions=1,
        max_open_executions=5,
        max_executions_per_minute=30,
        max_streams=20,
        max_ports=1,
        max_checkpoints=0,
        max_checkpoint_memory_bytes=2 * 1024**3,
        max_execution_seconds=60.0,
        max_queue_seconds=300.0,
        max_cpu_seconds=300,
        max_memory_bytes=4 * 1024**3,
        max_output_bytes=1024**2,
        max_code_bytes=64 * 1024,
        max_file_bytes=16 * 1024**2,
        max_session_bytes=64 * 1024**2,
        max_session_files=100,
        max_stored_bytes=64 * 1024**2,
        max_idle_seconds=600.0,
        max_session_seconds=3600.0,
        env=(),
    ),
}
