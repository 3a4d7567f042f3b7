"""JupyterLab's start: it waits for the panel's place only, and shows an open panel again."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Request, Route, expect

from tests.browser.pages import PANEL, open_lab, ready
from tests.support.hosts import Host


def has_open_panel(request: Request) -> bool:
    """Return whether the request saves a layout in which our panel is open."""
    return request.method == "PUT" and f'"current":"{PANEL[1:]}"' in (request.post_data or "").replace("\\", "")


def test_reload_with_an_open_panel_loads_it_after_the_layout_and_shows_it_again(page: Page, host: Host) -> None:
    with page.expect_request_finished(has_open_panel):
        open_lab(page, host)
    held: list[Route] = []
    ours: list[str] = []
    page.route("**/api/workspaces/**", lambda each: held.append(each))  # the layout waits for the answer
    page.on("request", lambda each: ours.extend(re.findall(r"exec.*/([^/.]*)[^/]*$", each.url)))
    # Not by a reload, before which the old page's own requests would be noted.
    again = page.url
    page.goto("about:blank")
    ours.clear()
    page.goto(again)
    page.locator(PANEL).wait_for(state="attached")
    assert ours == ["remoteEntry", "lib_index_js"]
    for route in held:
        route.continue_()
    page.unroute("**/api/workspaces/**")
    ready(page)
    expect(page.locator(PANEL).get_by_role("searchbox")).to_be_visible()
