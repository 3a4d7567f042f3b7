"""All probes, and the modules that they are written in, whose text is sent to the kernel.

To add one, write a function into the module of its group; see `inside` for what it may use and has to return.
"""

from __future__ import annotations

import inspect

from tests.containment import bypasses, escapes, inside, theft, walls

PROBES: dict[str, inside.Probe] = inside.PROBES

# In the order in which they need each other.
SOURCES: dict[str, str] = {
    "tests": "",
    "tests.containment": "",
    **{module.__name__: inspect.getsource(module) for module in (inside, theft, walls, escapes, bypasses)},
}
