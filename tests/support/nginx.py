"""nginx for tests, with a site's configuration and every file of its own in one directory."""

from __future__ import annotations

import os
from pathlib import Path


def start_nginx(text: str, directory: Path) -> list[str]:
    """Write nginx's configuration round a site, and return the command that starts it."""
    (directory / "jupyter.conf").write_text(text)
    temporary = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (directory / "nginx.conf").write_text(
        f"{'user root;' if os.geteuid() == 0 else ''}\npid {directory}/pid;\nerror_log {directory}/log warn;\n"
        f"events {{}}\nhttp {{\naccess_log off;\nclient_body_temp_path {directory}/body;\n{temporary}"
        f"include {directory}/jupyter.conf;\n}}\n"
    )
    return ["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf"), "-g", "daemon off;"]
