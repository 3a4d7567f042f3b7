"""The command ``jupyter exec``, and the gateways that it and `LocalJupyterServer` start."""

from __future__ import annotations

import sys

# With this package jsonschema can tell whether a text is an IRI, which nothing here asks. It makes a grammar whenever
# it is imported, and that takes longer than everything else in the start of a server.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # as Python writes it for what is not there
