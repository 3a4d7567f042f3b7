"""How the pages on Azure Container Apps are run: a fake of their credential, and the tests' own `exec/aca`."""

from __future__ import annotations

from tests.docs.reader import HERE, URL, Page, the_servers_token

_POOL = {"https://REGION.dynamicsessions.io/subscriptions/…/sessionPools/POOL": f"{URL}exec/aca"}
_TOKEN = """\
from pathlib import Path
token = Path("token").read_text().strip()
"""
_AZURE = f"""\
{_TOKEN}
import sys, types
from jupyter_exec_ext import AccessToken

class DefaultAzureCredential:
    def get_token(self, *scopes, **options):
        return AccessToken(token, 2**33)

sys.modules["azure"] = types.ModuleType("azure")
sys.modules["azure.identity"] = types.ModuleType("azure.identity")
sys.modules["azure.identity"].DefaultAzureCredential = DefaultAzureCredential
endpoint = "{URL}exec/aca"
"""

PAGES = {
    "docs/aca/client.md": Page(the_servers_token, _POOL, _AZURE, ("True 2  \n",)),
    "docs/aca/executor.md": Page(the_servers_token, {}, _AZURE, ("0 a,b",)),
    "docs/aca/serve.md": Page(the_servers_token, HERE, _TOKEN, ("42\n",)),
}
