"""The command ``jupyter exec``, and the gateways that it and `LocalJupyterServer` start."""

from __future__ import annotations

import sys

# jsonschema imports this package to check IRIs, which nothing here needs. Its import builds a grammar, and takes longer
# than everything else in the start of a server.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None is how Python marks a missing module
