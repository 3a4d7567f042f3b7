"""The documentation's pictures of the front end: ``python -m tests.browser --screenshots``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.agents import Agent, running_agent
from tests.browser.pages import Panel, change_theme, execute, open_lab, ready
from tests.browser.servers import running_lab
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host
from tests.support.outside_parts import require_part

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
MAX_BYTES = 150_000
WIDTH, HEIGHT = 1000, 680
PANEL_WIDTH = 400
NOTEBOOK = "sales by region.ipynb"

LOAD = """
import pandas as pd

regions = ["north", "south", "west"]
orders = pd.DataFrame({"region": regions, "orders": [412, 388, 530]})
orders["returns"] = [21, 35, 18]
"""
TABLE = "orders['rate'] = orders.returns / orders.orders\norders.round(3)"
MISTAKE = "targets = {'north': 400, 'south': 400}\ntargets['west']"
CHART = 'ax = orders.plot.bar(\n    x="region", y=["orders", "returns"],\n    rot=0, figsize=(5, 2.6)\n)'
WORKS = """
import time
for epoch in range(1, 6):
    print(f"epoch {epoch}: loss {1 / epoch:.3f}", flush=True)
time.sleep(500)
"""
SHELL = "# orders that were sent twice\n!sort orders.csv | uniq --repeated --count\nlen(open('orders.csv').readlines())"


@dataclass
class Scene:
    """A server where agents are at work."""

    host: Host
    agents: dict[str, Agent]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    require_part("sandbox")
    home = tmp_path_factory.mktemp("pictures")
    with ExitStack() as stack:
        host = stack.enter_context(running_lab(home / "lab"))
        agents = {}
        for name, policy in (
            ("sales analyst", "restricted"),
            ("nightly report", "default"),
            ("research assistant", "asks"),
        ):
            connection = replace(host.info, token=mint(host, policy=policy, name=name, isolation="sandbox").token)
            agents[name] = stack.enter_context(running_agent(connection, home))
        analyst, nightly = agents["sales analyst"], agents["nightly report"]
        session = analyst("open", name="sales by region")
        for code in (LOAD, TABLE, MISTAKE, CHART):
            analyst("run", session_id=session, code=code.strip())
        saved = owner_of(host).call("POST", f"/sessions/{session}/notebook", json={"path": NOTEBOOK})
        assert saved.ok, saved.text
        session = nightly("open", name="train the forecast")
        nightly("run", session_id=session, code="epochs = 5")
        nightly.begin("run", session_id=session, code=WORKS.strip())
        yield Scene(host, agents)


def shot(target: Page | Locator, name: str) -> None:
    """Make a picture, for others to look at and this test to weigh."""
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    target.screenshot(path=path, animations="disabled", caret="hide")
    assert path.stat().st_size <= MAX_BYTES


def new_lab(new_page: Callable[..., Page], scene: Scene, theme: str = "JupyterLab Light") -> Panel:
    """Open JupyterLab with a panel as wide as people make it."""
    page = new_page(viewport={"width": WIDTH, "height": HEIGHT})
    panel = open_lab(page, scene.host)
    change_theme(page, theme)
    execute(page, "docmanager:open", path=NOTEBOOK)
    expect(page.locator(".jp-NotebookPanel .jp-OutputArea-output").first).to_be_visible()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Python 3 (ipykernel) | Idle")
    box = panel.node.bounding_box()
    assert box is not None
    edge, middle = box["x"] + box["width"] + 1, box["y"] + box["height"] / 2
    page.mouse.move(edge, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + PANEL_WIDTH, middle, steps=4)
    page.mouse.up()
    expect(panel.node).to_have_css("width", re.compile(r"^(39|40)\d"))
    return panel


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_panel(new_page: Callable[..., Page], scene: Scene, theme: str) -> None:
    panel = new_lab(new_page, scene, f"JupyterLab {theme}")
    item = panel.unfold("sales by region")
    expect(item).to_contain_text("sandbox")
    expect(item.locator("img")).to_be_visible()
    panel.page.mouse.move(WIDTH - 5, HEIGHT - 60)
    shot(panel.page, "panel" if theme == "Light" else "panel-dark")


def test_approvals(new_page: Callable[..., Page], scene: Scene) -> None:
    research = scene.agents["research assistant"]
    session = research("open", name="orders of today")
    research.begin("run", session_id=session, code=SHELL)
    panel = new_lab(new_page, scene)
    section = panel.page.locator("#jupyter-exec-ext-approvals")
    panel.node.get_by_role("heading", name="Sessions Section").click()
    expect(section.locator(".cm-content")).to_contain_text("uniq")
    section.locator(".cm-line", has_text="uniq").click()
    panel.page.keyboard.press("End")
    panel.page.keyboard.type(" | head -n 20")
    expect(section.get_by_role("button", name="Approve as edited")).to_be_visible()
    section.get_by_label("Note to the agent").fill("only the first ones, please")
    shot(panel.page, "approvals")
    section.get_by_role("button", name="Reject", exact=True).click()
    assert research.result()["state"] == "rejected"


def test_the_token_dialog(new_page: Callable[..., Page], scene: Scene) -> None:
    panel = new_lab(new_page, scene)
    execute(panel.page, "jupyter-exec-ext:new-token")
    section = panel.page.locator("#jupyter-exec-ext-tokens")
    section.get_by_label("Name").fill("code reviewer")
    section.get_by_label("Policy").select_option("default")
    section.get_by_role("button", name="Create").click()
    dialog = panel.page.locator(".jp-Dialog-content")
    expect(dialog).to_contain_text("AutoGen")
    shot(panel.page, "token")


def test_the_running_section_of_notebook_7(new_page: Callable[..., Page], scene: Scene) -> None:
    page = new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(f"{scene.host.info.url}tree?token={scene.host.owner.token}")
    ready(page)
    page.get_by_role("tab", name="Running").click()
    # In the list of kernels, too; the section of agents comes last, and gets its button after its items.
    agents = page.locator(".jp-RunningSessions-section").last
    expect(agents).to_contain_text("train the forecast")
    expect(page.locator(".jp-AccordionPanel-title, .lm-AccordionPanel-title").last).to_contain_text("Shut Down All")
    shot(page, "notebook-running")
