"""Time from the start of a server to its first answer, with and without the extension."""

from __future__ import annotations

from ..bench import Bench
from ..interleave import interleaved
from ..processes import settle
from ..servers import Place, ours, running

TABLE = "start of a server to its first answer"
WITHOUT, WITH = "Jupyter Server without the extension", "Jupyter Server with it"
STOCK, OURS = "Kernel Gateway as it comes", "Kernel Gateway with our personality"


def server(enabled: bool) -> Place:
    """Return a Jupyter Server of this environment."""
    extensions = f"--ServerApp.jpserver_extensions={{'jupyter_exec_ext': {enabled}}}"
    return Place(("-m", "jupyter_server", "--allow-root", "--no-browser", extensions))


PLACES = {WITHOUT: server(False), WITH: server(True), STOCK: Place(("-m", "kernel_gateway")), OURS: ours()}


def measure(bench: Bench) -> None:
    """Measure."""

    def start(place: Place) -> float:
        with running(place, bench.server_options) as started:
            return started.seconds * 1e3

    turns = {label: (lambda place=place: start(place)) for label, place in PLACES.items()}
    bench.results.add(TABLE, "ms", interleaved(turns, bench.times(0.25), 1, settle))
