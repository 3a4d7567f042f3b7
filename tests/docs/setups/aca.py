"""How the pages on Azure Container Apps are run: a fake of their credential, and the tests' own `exec/aca`."""

from __future__ import annotations

from tests.docs.reader import URL, Page, the_servers_token

_AZURE = """\
import sys, types
from pathlib import Path
from jupyter_exec_ext import AccessToken

class DefaultAzureCredential:
    def get_token(self, *scopes, **options):
        return AccessToken(Path("token").read_text().strip(), 2**33)

sys.modules["azure"] = types.ModuleType("azure")
sys.modules["azure.identity"] = types.ModuleType("azure.identity")
sys.modules["azure.identity"].DefaultAzureCredential = DefaultAzureCredential
endpoint = "<the URL of the server>exec/aca"
"""

PAGES = {
    "docs/aca.md": Page(
        the_servers_token,
        {"https://REGION.dynamicsessions.io/subscriptions/…/sessionPools/POOL": f"{URL}exec/aca"},
        _AZURE,
        ("True 2  \n", "0 a,b"),
    ),
}
