"""F23: what agents show and how they call things does nothing on the page that shows it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.agents import Agent
from tests.browser.beacon import FENCE, Beacon, running_beacon
from tests.browser.pages import execute, open_lab, open_notebook
from tests.browser.payloads import FILES, HTML, MARKDOWN, NAMES, OTHER, SVG, TEXT, armed
from tests.browser.servers import FORKED
from tests.support.bearers import mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host
from tests.support.kernelspecs import add_kernelspec

AT_LEAST = 100
# So many outputs of one execution are shown.
BATCH = 60
# JupyterLab shows so many of a cell's.
CONTROL_BATCH = 40
_ENDS_THE_PAGE = r"shutdown|evil-here|display: none|position: fixed|<base|javascript:canary.*<form|<template"
# What hides or reorders text.
DISGUISE = re.compile("[\u200b\u202a-\u202e\u2060-\u2069\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f]|[\U000e0000-\U000e007f]")

_WATCH = """() => {
  window.executed = [];
  const { commands } = window.jupyterapp;
  commands.addCommand('probe:canary', { execute: () => window.canary('command') });
  commands.commandExecuted.connect((_, { id }) => window.executed.push(id));
}"""
# What JupyterLab executes by itself when it starts.
_AT_START = {"apputils:load-statedb", "helpmenu:get-kernel", "launcher:create", "router:tree"}
# Everything that a person could do by mistake to every element: a link to another site is theirs to follow.
_TOUCH = """root => {
  const kinds = ['pointerover', 'mouseover', 'mouseenter', 'mousemove', 'pointerdown', 'mousedown', 'focus', 'focusin',
    'pointerup', 'mouseup', 'click', 'dblclick', 'keydown', 'keyup', 'input', 'change', 'blur'];
  const isElsewhere = each => each.closest('a[href^="http"]') !== null;
  let touched = 0;
  for (const each of root.querySelectorAll('*')) {
    if (isElsewhere(each) || each.closest('[data-of-the-panel]')) { continue; }
    for (const kind of kinds) {
      const Kind = /key/.test(kind) ? KeyboardEvent : /focus|blur/.test(kind) ? FocusEvent : MouseEvent;
      each.dispatchEvent(new Kind(kind, { bubbles: true, cancelable: true, key: 'Enter' }));
    }
    touched += 1;
  }
  return touched;
}"""
# Nothing that was begun before is under way after it: timers, pictures, and a request that is the last one.
_FENCE = """async url => {
  await new Promise(done => requestIdleCallback(() => setTimeout(done), { timeout: 5000 }));
  await Promise.all([...document.images].map(each => each.decode().catch(() => undefined)));
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  await fetch(url, { mode: 'no-cors' });
}"""
WRITES = """
for name, text in {files!r}.items():
    with open(name, "w", encoding="utf-8", newline="") as file:
        _ = file.write(text)
"""
_LINKS = """root => [...root.querySelectorAll('a[href], area[href]')].map(
  each => [each.getAttribute('href'), each.target, each.rel])"""


class Watched:
    """A page on which whatever a payload does is noted."""

    def __init__(self, page: Page, beacon: Beacon, host: Host) -> None:
        self.page = page
        self.ran: list[Any] = []
        self.requests: list[str] = []
        self._beacon = beacon
        self._number = 0
        context = page.context
        context.expose_function("canary", lambda what: self.ran.append(what))
        page.on("dialog", self._dismiss)
        context.on("page", lambda opened: self.requests.append(f"opened {opened.url}"))
        context.on("request", lambda request: self._note(request.url, host))

    def _dismiss(self, dialog: Any) -> None:
        self.ran.append(dialog.message)
        dialog.dismiss()

    def _note(self, url: str, host: Host) -> None:
        if url.startswith(("data:", "blob:")) or url == f"http://{self._beacon.address}{FENCE}":
            return
        if not url.startswith(host.info.url) or "evil" in url or "shutdown" in url:
            self.requests.append(url)

    def begin(self) -> None:
        """Count from here on."""
        self.page.evaluate(_WATCH)

    def arm(self, payload: str) -> str:
        self._number += 1
        return armed(payload, self._number, self._beacon.address)

    def touch(self, root: Locator) -> None:
        """Do to everything in there what a person could do by mistake; wait for what comes of it."""
        # JupyterLab asks for this before it takes a command from a page; ours must be good without.
        root.evaluate("root => void window.jupyterapp.commandLinker.markTrusted(root)")
        assert root.evaluate(_TOUCH) > 0
        self.settle()

    def settle(self) -> None:
        """Wait until nothing that was begun is under way."""
        self.page.evaluate(_FENCE, f"http://{self._beacon.address}{FENCE}")

    @property
    def executed(self) -> list[str]:
        return [each for each in self.page.evaluate("() => window.executed") if each not in _AT_START]

    @property
    def asked(self) -> list[str]:
        """What was asked for, as the page says and as the beacon has seen."""
        return [*self.requests, *(path for path in self._beacon.paths if path != FENCE)]


@pytest.fixture
def watched(new_page: Callable[..., Page], host: Host) -> Iterator[Watched]:
    with running_beacon() as beacon:
        yield Watched(new_page(), beacon, host)


def bundles(watched: Watched) -> list[dict[str, str]]:
    """Return every payload that is a display, as the bundle that shows it."""
    kinds = [("text/html", HTML), ("image/svg+xml", SVG), ("text/markdown", MARKDOWN), ("text/plain", TEXT)]
    found = [{kind: watched.arm(payload)} for kind, payloads in kinds for payload in payloads]
    return [*found, *({watched.arm(kind): watched.arm(payload)} for kind, payload in OTHER)]


def showing(shown: list[dict[str, str]]) -> str:
    return f"from IPython.display import display\nfor each in {shown!r}:\n    display(each, raw=True)"


def test_outputs_do_nothing(watched: Watched, host: Host, agent: Agent) -> None:
    shown = bundles(watched)
    batches = [shown[start : start + BATCH] for start in range(0, len(shown), BATCH)]
    session = agent("open", name="hostile", kernel_name=FORKED)
    panel = open_lab(watched.page, host)
    item = panel.unfold("hostile")
    watched.begin()
    for batch in batches:
        assert agent("run", session_id=session, code=showing(batch))["state"] == "ok"
        log = item.locator(".jex-Execution").first.get_by_role("log")
        expect(log.locator(".jex-Output")).to_have_count(len(batch))
        watched.touch(log)
        check_links(log)
        assert not DISGUISE.search(log.inner_text())
    print(f"{len(shown)} payloads shown, {len(watched.ran)} ran, {len(watched.asked)} requests, {watched.executed}")
    assert len(shown) >= AT_LEAST
    assert (watched.ran, watched.asked, watched.executed) == ([], [], [])
    expect(watched.page.locator(".jp-Dialog")).to_have_count(0)


def check_links(root: Locator) -> None:
    """Links lead to other sites and tell them nothing, but for those that JupyterLab's headings have to themselves."""
    for href, target, rel in root.evaluate(_LINKS):
        if href.startswith("#"):
            continue
        assert href.startswith("http"), href
        assert (target, rel) == ("_blank", "noopener noreferrer")


def test_errors_streams_and_code_do_nothing(watched: Watched, host: Host, agent: Agent) -> None:
    session = agent("open", name="hostile", kernel_name=FORKED)
    panel = open_lab(watched.page, host)
    item = panel.unfold("hostile")
    watched.begin()
    texts = [watched.arm(payload) for payload in (*TEXT, *HTML[:20])]
    runs = [
        (f"import sys\nfor each in {texts!r}:\n    print(each)\n    print(each, file=sys.stderr)", "ok"),
        (f"raise type({texts[0]!r}, (Exception,), {{}})({chr(10).join(texts)!r})", "error"),
        # Code is shown as well, in the line and highlighted.
        ("\n".join(f"# {text}".replace("\n", " ").replace("\r", " ").replace("\0", " ") for text in texts), "ok"),
    ]
    for code, state in runs:
        assert agent("run", session_id=session, code=code)["state"] == state
        execution = item.locator(".jex-Execution").first
        expect(execution).to_have_attribute("data-tone", "good" if state == "ok" else "bad")
        expect(execution.locator(".jex-Details")).to_be_visible()
        watched.touch(execution.locator(".jex-Details"))
        assert not DISGUISE.search(execution.inner_text())
        if state == "error":
            expect(execution.locator("[data-stream=error] span[class^=ansi-]")).not_to_have_count(0)
    assert (watched.ran, watched.asked, watched.executed) == ([], [], [])


def test_names_do_nothing(watched: Watched, host: Host, agent: Agent) -> None:
    bearers = []
    owner = owner_of(host)
    for payload in NAMES:
        name = watched.arm(payload)[:200]
        agent("open", name=name, kernel_name=FORKED, metadata={name: name})
        bearers.append(mint(host, policy="trusted", name=name))
    session = agent("open", name="makes files", kernel_name=FORKED)
    files = [watched.arm(name).replace("/", "_") for name in FILES]
    agent(
        "run",
        session_id=session,
        code=f"for each in {files!r}:\n    open(each, 'w').write('<script>canary(1)</script>')",
    )

    add_kernelspec(host.home, "odd", "local-provisioner")
    odd = host.home / "jupyter_data_dir" / "kernels" / "odd"
    spec = json.loads((odd / "kernel.json").read_text())
    (odd / "kernel.json").write_text(json.dumps({**spec, "display_name": "".join(map(watched.arm, NAMES))}))

    panel = open_lab(watched.page, host)
    watched.begin()
    expect(panel.node.locator(".jex-Row-name", has_text="canary").first).to_be_visible()
    panel.node.get_by_role("heading", name="Isolation and limits").click()
    expect(panel.node.locator("dt", has_text="odd")).to_have_attribute("title", re.compile("canary"))
    expect(panel.unfold("makes files").locator(".jex-File")).to_have_count(len(files))
    execute(watched.page, "running:show-panel")
    expect(watched.page.locator(".jp-RunningSessions-item.jp-mod-kernel", has_text="makes files")).to_be_visible()
    execute(watched.page, "jupyter-exec-ext:open-panel")
    expect(panel.node).to_be_visible()
    watched.page.evaluate("() => { window.executed = [] }")
    for root in (panel.node.locator(".jex-Row-name"), panel.node.locator(".jex-Files .jex-Ellipsis")):
        for each in root.all():
            assert each.evaluate("each => each.children.length") == 0, "a name is text"
            assert not DISGUISE.search(each.inner_text())
    titles = panel.node.evaluate("root => [...root.querySelectorAll('[title], [aria-label]')].map(e => e.title)")
    assert not [title for title in titles if DISGUISE.search(title.replace("\n", ""))]
    watched.settle()
    assert (watched.ran, watched.asked, watched.executed) == ([], [], [])
    shutil.rmtree(odd)
    for bearer in bearers:
        owner.call("DELETE", f"/tokens/{bearer.id}")


@only_in_full
def test_views_previews_changes_and_search_results_do_nothing(watched: Watched, host: Host, agent: Agent) -> None:
    shown = bundles(watched)[:BATCH]
    texts = {"page.html": HTML, "notes.md": MARKDOWN, "plain.txt": TEXT}
    files = {name: "\n".join(map(watched.arm, payloads)) for name, payloads in texts.items()}
    files |= {watched.arm(name).replace("/", "_"): files["page.html"] for name in FILES}
    drawings = {f"drawing-{number}.svg": watched.arm(svg) for number, svg in enumerate(SVG[:30])}
    session = agent("open", name=watched.arm(NAMES[0]), kernel_name=FORKED)
    for code in (
        WRITES.format(files=files | drawings),
        showing(shown),
        WRITES.format(files={name: text + text for name, text in files.items()}),
    ):
        assert agent("run", session_id=session, code=code)["state"] == "ok"

    page = watched.page
    panel = open_lab(page, host)
    watched.begin()
    execute(page, "jupyter-exec-ext:open-view", sessionId=session)
    view = page.locator(".jex-View:visible")
    expect(view.locator(".jex-Execution")).to_have_count(3)
    click_all(view, ".jex-Execution .jex-Row-main[aria-expanded=false]")
    expect(view.locator(".jex-File")).to_have_count(2 * len(files) + len(drawings))
    click_all(view, ".jex-File[aria-expanded=false]")
    expect(view.locator(".jex-FileContent")).to_have_count(2 * len(files) + len(drawings))
    expect(view.get_by_text("Loading…")).to_have_count(0)
    expect(view.locator("[data-kind=added]")).not_to_have_count(0)
    expect(view.locator(".jex-Output")).to_have_count(len(shown))
    touch_contents(watched, view)

    execute(page, "jupyter-exec-ext:open-view-of-all")
    runs = page.locator(".jex-View:visible").get_by_role("region", name="Runs")
    expect(runs.locator(".jex-Where", has_text="canary").first).to_be_visible()
    click_all(runs, ".jex-Execution .jex-Row-main[aria-expanded=false]")
    touch_contents(watched, runs)
    panel.node.get_by_role("searchbox").fill("canary")
    found = panel.node.get_by_label("Runs found")
    expect(found.locator(".jex-Execution").first).to_be_visible()
    click_all(found, ".jex-Execution .jex-Row-main[aria-expanded=false]")
    touch_contents(watched, found)

    names = page.locator(".jex-Where, .jex-Found-where .jex-Ellipsis, .jex-Lanes .jex-Row-name, .lm-TabBar-tabLabel")
    assert [each for each in names.all() if each.evaluate("each => each.children.length") != 0] == []
    opened = [each for each in watched.executed if not each.startswith("jupyter-exec-ext:open-view")]
    # The panel itself reads the file that is called evil.html.
    asked = [url for url in watched.asked if f"/exec/v1/sessions/{session}/" not in url]
    assert (watched.ran, asked, opened) == ([], [], [])


def click_all(root: Locator, selector: str) -> None:
    root.evaluate("(root, selector) => root.querySelectorAll(selector).forEach(each => each.click())", selector)


def touch_contents(watched: Watched, root: Locator) -> None:
    """Touch what comes from the agent, and none of our own buttons."""
    expect(root.locator(".jex-Output")).not_to_have_count(0)
    root.evaluate("root => void window.jupyterapp.commandLinker.markTrusted(root)")
    for each in root.locator(".jex-FileContent, .jex-Outputs, .jex-Code").all():
        each.evaluate(_TOUCH)
    watched.settle()
    assert not DISGUISE.search(root.inner_text())


def test_the_same_outputs_act_where_they_are_trusted(watched: Watched, host: Host) -> None:
    """The control: a notebook trusts the outputs of cells that its person runs."""
    # A page that is left, or on which nothing is visible, can be asked no more.
    shown = [each for each in bundles(watched) if not any(re.search(_ENDS_THE_PAGE, text) for text in each.values())]
    shown = shown[: 2 * CONTROL_BATCH]
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{start}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": showing(shown[start : start + CONTROL_BATCH]),
        }
        for start in range(0, len(shown), CONTROL_BATCH)
    ]
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (host.home / "root" / "control.ipynb").write_text(json.dumps(notebook))
    open_lab(watched.page, host, panel=False)
    opened = open_notebook(watched.page, "control.ipynb")
    watched.begin()
    execute(watched.page, "notebook:run-all-cells")
    prompts = opened.locator(".jp-CodeCell > .jp-Cell-inputWrapper .jp-InputPrompt")
    expect(prompts).to_have_text([f"[{number}]:" for number in range(1, len(cells) + 1)])
    # JupyterLab takes commands out of what it trusts, too; put in by hand, they are executed.
    commands = [watched.arm(payload) for payload in HTML if "commandlinker" in payload]
    outputs = opened.locator(".jp-Cell-outputArea")
    outputs.first.evaluate("(root, payloads) => root.insertAdjacentHTML('beforeend', payloads.join(''))", commands)
    # The others need no touch; and one of the commands opens something else.
    watched.touch(outputs.first)
    ran, asked, executed = len(watched.ran), len(watched.asked), watched.executed.count("probe:canary")
    print(f"trusted: {ran} ran, {asked} requests, {executed} commands")
    assert min(ran, asked, executed) > 0
