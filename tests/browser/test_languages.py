"""JupyterLab in another language: the panel is in it, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Page, expect

from tests.browser.agents import Agent, cautious_agent
from tests.browser.pages import Panel, execute, open_lab
from tests.browser.servers import FORKED
from tests.browser.test_accessibility import violations
from tests.support.hosts import Host

GERMAN = Path(__file__).parent.parent.parent / "jupyter_exec_ext/locale/de_DE/LC_MESSAGES/jupyter_exec_ext.json"
LANGUAGE = "lab/api/settings/@jupyterlab/translation-extension:plugin"
# What a person reads, hears and sees when the mouse rests, but for what agents and people have written.
_TEXTS = """panel => {
  const texts = [];
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) {
      texts.push(node.textContent);
    } else {
      texts.push(...['title', 'aria-label', 'placeholder'].map(name => node.getAttribute(name) ?? ''));
    }
  }
  return texts.flatMap(text => text.split('\\n')).map(text => text.trim()).filter(Boolean);
}"""


def choose_language(host: Host, locale: str) -> None:
    """Choose the language of JupyterLab's pages that are opened from now on."""
    raw = json.dumps({"raw": json.dumps({"locale": locale})})
    done = requests.put(f"{host.info.url}{LANGUAGE}", headers=host.info.auth_headers, data=raw, timeout=30)
    assert done.status_code == 204, done.text


@pytest.fixture
def german(page: Page, host: Host) -> Iterator[Panel]:
    """The panel of a page in German."""
    choose_language(host, "de_DE")
    try:
        yield open_lab(page, host)
    finally:
        choose_language(host, "en")


def test_panel_is_in_german_and_accessible(german: Panel, agent: Agent, host: Host, tmp_path: Path) -> None:
    session = agent("open", name="x1", kernel_name=FORKED)
    agent("run", session_id=session, code="open('x2', 'w').write('x'); 1 / 0")
    with cautious_agent(host, tmp_path) as cautious:
        waits = cautious("open", name="x3", kernel_name=FORKED)
        cautious.begin("run", session_id=waits, code="!echo x")
        german.unfold("x1")
        german.row("x1").hover()
        expect(german.page.locator("#jupyter-exec-ext-approvals .cm-content")).to_be_visible()
        german.page.locator(".lm-AccordionPanel-title, .jp-AccordionPanel-title", has_text="Isolierung").click()
        execute(german.page, "jupyter-exec-ext:new-token")
        expect(german.node.get_by_role("form", name="Neues Token")).to_be_visible()
        expect(german.node.locator(".jex-Group", has_text="cautious")).to_have_count(1)
        shown = set(german.node.evaluate(_TEXTS))
        messages = json.loads(GERMAN.read_text(encoding="utf-8"))
        english = {text for text, (first, *_) in messages.items() if text and first != text}
        assert shown & {"Sitzungen", "beschäftigt", "bereit", "Nach Namen"} >= {"Sitzungen", "Nach Namen"}, shown
        assert not shown & english
        assert violations(german) == []
        execute(german.page, "jupyter-exec-ext:open-view", sessionId=session)
        view = german.page.locator(".jex-View:visible")
        expect(view.get_by_role("img", name="Ausführungen: 1 in dieser Zeit")).to_be_visible()
        assert not set(view.evaluate(_TEXTS)) & english
        assert violations(german, ".jex-View") == []
        german.node.get_by_role("searchbox").fill("open(")
        found = german.node.get_by_label("Gefundene Ausführungen")
        expect(found).to_contain_text("x1")
        assert not set(found.evaluate(_TEXTS)) & english
        assert violations(german) == []
