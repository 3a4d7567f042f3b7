"""How each page is run, a module for each folder of pages; `PAGES` has them all."""

from __future__ import annotations

import importlib
import pkgutil

from tests.docs.reader import Page

PAGES: dict[str, Page] = {
    name: page
    for module in pkgutil.iter_modules(__path__)
    for name, page in importlib.import_module(f"{__name__}.{module.name}").PAGES.items()
}
