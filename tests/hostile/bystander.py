"""Another token's session, whose runs must be `ok`, quick, and still there whatever hostile kernels do."""

from __future__ import annotations

import threading
import time

import requests

from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host

#: Pause between two runs. With it the records of an hour fit into a small store; more of them would be evicted.
_PAUSE_SECONDS = 0.5
_TOKEN_SECONDS = 86_400.0


class Bystander:
    """A token that runs `1 + 1` again and again, in a thread.

    Attributes
    ----------
    waits_seconds : list of float
        How long each run took.
    runs : list of str
        Ids of its executions, of earlier servers too.
    failures : list of str
        What was not as it must be.
    """

    def __init__(self, host: Host) -> None:
        self._token = mint(host, policy="other", name="bystander", expires_in_seconds=_TOKEN_SECONDS).token
        self.waits_seconds: list[float] = []
        self.runs: list[str] = []
        self.failures: list[str] = []
        self._over = threading.Event()

    def start(self, host: Host) -> None:
        """Begin to run code on a server."""
        self._over.clear()
        self._bearer = Bearer(host, self._token)
        self._session = self._bearer.session()
        self.run_once(measure=False)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            self.run_once()

    def run_once(self, *, measure: bool = True) -> None:
        """Run code once, and note how it went."""
        began = time.monotonic()
        try:
            answer = self._bearer.run(self._session, "1 + 1")
        except requests.RequestException as error:
            self.failures.append(f"no answer: {error}")
            return
        if measure:
            self.waits_seconds.append(time.monotonic() - began)
        if answer.status_code != 200 or answer.json()["state"] != "ok":
            self.failures.append(f"answer {answer.status_code}: {answer.text[:200]}")
        else:
            self.runs.append(answer.json()["id"])

    def stop(self) -> None:
        """Run nothing more."""
        self._over.set()
        self._thread.join(60)

    def missing_records(self, host: Host, *, most: int | None = None) -> list[str]:
        """Return which of its runs a server does not have, or not as `ok`; of the last `most` of them."""
        bearer = Bearer(host, self._token)
        missing = []
        for run in self.runs[-most:] if most else self.runs:
            answer = bearer.call("GET", f"/executions/{run}")
            if answer.status_code != 200 or answer.json()["state"] != "ok":
                missing.append(run)
        return missing


def percentile(values: list[float], share: float) -> float:
    """Return the value that so great a share of the values does not exceed; 0 if there are none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0
