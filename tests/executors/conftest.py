from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.executors.containers.image import default_image
from tests.engines import BASE, running_engine
from tests.executors.images import build
from tests.executors.seed_examples import CUSTOM_DOCKERFILE


@pytest.fixture(scope="session")
def bare_engine() -> Iterator[Any]:
    """A client of a container engine."""
    with running_engine() as client:
        yield client


@pytest.fixture(scope="session")
def engine(bare_engine: Any) -> Any:
    """The same, with the default image built: over this machine's network, since no other may lead to packages."""
    default_image(bare_engine, print, "host")
    return bare_engine


@pytest.fixture(scope="session")
def seeds_image(bare_engine: Any) -> str:
    """An image with nothing of ours, which meets what the seed asks of one and no more."""
    return build(bare_engine, "jupyter-exec-test-seed", CUSTOM_DOCKERFILE.format(base=BASE))
