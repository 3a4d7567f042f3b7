"""Long chains of restores: each life of the kernel begins on the stack of the one before, and leaves objects."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.support.full import scaled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")
# In full, enough lives for every place on the pieces (16 KiB) in which Python has the stack. A few took so long, when
# each call needed a further piece, that their checkpoint failed.
_LIVES = scaled(150, per_commit=10)


@pytest.mark.timeout(600)
def test_each_restored_kernel_can_be_restored_again(hosts: Any, record_property: Any) -> None:
    with ExecClient(hosts["server"].info) as client, client.session() as session:
        session.run("lives = []", check=True)
        for life in range(_LIVES):
            checkpoint = session.checkpoint()
            session.restore(checkpoint)
            session.delete_checkpoint(checkpoint)
            assert session.run(f"lives.append({life}); len(lives)", check=True).text.strip() == str(life + 1)
    record_property("restores in one chain", _LIVES)
