"""Description of a session's state in JSON, as the last cell of a notebook: variables, history, directory and files."""

# It runs in a kernel, after cells that may have changed anything there.
# ruff: noqa: F821

import hashlib as _hashlib
import json as _json
import os as _os
import re as _re


def _describe(value, depth=0):  # type: ignore[no-untyped-def]
    kind = type(value).__name__
    if isinstance(value, (list, tuple)) and depth < 4:
        return [kind, *(_describe(item, depth + 1) for item in value)]
    if isinstance(value, dict) and depth < 4:
        return [kind, *([repr(key), _describe(item, depth + 1)] for key, item in value.items())]
    if isinstance(value, (set, frozenset)):
        return [kind, *sorted(map(repr, value))]
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        if value.dtype.hasobject:
            return [kind, list(value.shape), _describe(value.tolist(), depth + 1)]
        return [kind, str(value.dtype), list(value.shape), _hashlib.sha256(value.tobytes()).hexdigest()]
    if hasattr(value, "bit_generator"):
        return [kind, _describe(value.bit_generator.state)]
    if hasattr(value, "getstate"):
        return [kind, _describe(value.getstate())]
    if hasattr(value, "to_csv"):
        return [kind, value.to_csv()]
    text = _re.sub(r"0x[0-9a-fA-F]+|pid \d+|/[^ '\"]*/ses_[^/ '\"]*", "...", repr(value))
    if type(value).__module__ == "__main__" and hasattr(value, "__dict__") and depth < 4:
        return [text, _describe(vars(value), depth + 1)]
    return [kind, text]


def _read_files(place):  # type: ignore[no-untyped-def]
    found = {}
    for here, _, names in _os.walk(place):
        for name in names:
            path = _os.path.join(here, name)
            if "__pycache__" not in path:
                with open(path, "rb") as file:
                    found[_os.path.relpath(path, place)] = _hashlib.sha256(file.read()).hexdigest()
    return sorted(found.items())


_shell = get_ipython()  # type: ignore[name-defined]
print(
    _json.dumps(
        {
            "variables": {
                name: _describe(value)
                for name, value in sorted(_shell.user_ns.items())
                if name not in _shell.user_ns_hidden and not name.startswith("_")
            },
            "inputs": In[:-1],  # type: ignore[name-defined]
            "outputs": _describe(Out),  # type: ignore[name-defined]
            "last": [_describe(each) for each in (_, __, ___)],  # type: ignore[name-defined]
            "count": _shell.execution_count,
            "directory": _os.path.basename(_os.getcwd()) if "below" in _os.getcwd() else "",
            "files": _read_files("."),
        }
    )
)
