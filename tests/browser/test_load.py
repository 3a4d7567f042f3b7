"""Many sessions and much output: the page answers all the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

from tests.browser.agents import Agent
from tests.browser.pages import Panel
from tests.hosts import Host
from tests.tokens import owner_of

SESSIONS = 200
OUTPUT_BYTES = 50_000_000
ANSWERS_WITHIN_MS = 200

# What the browser itself measures: from a key or a click to the picture that shows what came of it.
_MEASURE = """() => {
  window.interactions = [];
  window.longest = 0;
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) {
      if (each.interactionId) {
        window.interactions.push([each.name, each.duration, each.processingEnd - each.processingStart]);
      }
    }
  }).observe({ type: 'event', durationThreshold: 16, buffered: false });
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) {
      window.longest = Math.max(window.longest, each.duration);
    }
  }).observe({ type: 'longtask' });
}"""


def test_two_hundred_sessions(panel: Panel, agent: Agent, host: Host) -> None:
    owner = owner_of(host)
    kernel = owner.call("GET", "/../../api/kernels")
    print(kernel.status_code)
    page = panel.page
    rows = panel.node.locator(".jex-Session")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: owner.session(name=f"session {n}", kernel_name="forked"), range(SESSIONS)))
    expect(rows).to_have_count(SESSIONS)
    page.evaluate(_MEASURE)
    search = panel.node.get_by_role("searchbox")
    search.click()
    page.keyboard.type("session 17")
    expect(rows).to_have_count(11)
    for _ in range(10):
        page.keyboard.press("Backspace")
    expect(rows).to_have_count(SESSIONS)
    for number in range(SESSIONS - 1, SESSIONS - 6, -1):
        panel.row(f"session {number}").click()
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    print(page.evaluate("() => [window.interactions, window.longest]"))
