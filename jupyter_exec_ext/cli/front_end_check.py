"""What ``jupyter exec doctor`` says of the JupyterLab front end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from .. import __version__
from .doctor_finding import Finding

NAME = "@jupyter-exec-ext/labextension"
_INSTALL = (
    "install a wheel of this package, which carries it (pip install --force-reinstall --no-deps jupyter-exec-ext), or "
    "from a checkout with Node.js: REQUIRE_LABEXTENSION=1 pip install . ; the server works without it"
)


def front_end() -> Iterator[Finding]:
    """Look where JupyterLab and Notebook look for what they load, if one of them is here."""
    if find_spec("jupyterlab_server") is None:
        return
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_page_config

    paths = jupyter_path("labextensions")
    found = next((path for path in (Path(place, NAME, "package.json") for place in paths) if path.is_file()), None)
    if found is None:
        yield Finding("the JupyterLab front end is not installed", _INSTALL, fails=False)
        return
    page = get_page_config(paths)
    loaded = [extension["name"] for extension in page["federated_extensions"]]
    theirs = str(json.loads(found.read_text()).get("version"))
    if NAME not in loaded:
        yield Finding(f"the JupyterLab front end is not whole ({found.parent})", _INSTALL)
    elif NAME in page["disabledExtensions"]:
        yield Finding("the JupyterLab front end is disabled", f"jupyter labextension enable {NAME}", fails=False)
    elif theirs != __version__:
        what = f"the JupyterLab front end is of version {theirs}, and this package is {__version__} ({found.parent})"
        yield Finding(what, _INSTALL)
    else:
        yield Finding("the JupyterLab front end is enabled")
