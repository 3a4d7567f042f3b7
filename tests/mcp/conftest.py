from __future__ import annotations

from importlib.util import find_spec

# The extra `mcp` brings the SDK.
collect_ignore_glob = [] if find_spec("mcp") else ["test_*.py"]
