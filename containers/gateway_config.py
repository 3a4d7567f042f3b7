"""Settings of the gateway that compose.yml starts."""

c = get_config()  # noqa: F821 - Jupyter defines it in configuration files

c.ExecEngine.policies = {
    "researcher": {
        "base": "default",
        "max_sessions": 4,
        "max_execution_seconds": 300,
        "max_memory_bytes": 2 * 1024**3,
    },
}
# Names by which a reverse proxy passes requests on.
c.ExecPersonality.allowed_hosts = ["agents.example.org"]
