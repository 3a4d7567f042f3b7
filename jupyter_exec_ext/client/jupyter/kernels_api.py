"""Client operations of the standard kernels API, which every Jupyter server has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ApiNotFound, KernelSpecNotFound, UnexpectedAnswer
from ...models import KernelSpecInfo
from ..api.answers import parsed
from ..api.request_exchange import exchange, segment
from ..api.retries import DEFAULT_RETRY, NO_RETRY, RetryPolicy
from ..api.steps import Operation, Pause, Request

# The interrupt is sent after a Ctrl-C, so the user waits for it.
_TIDY_SECONDS = 5.0
# Together more than a kernel takes to start.
_DELETE_PAUSES_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class KernelsApi:
    """The operations of the standard kernels API."""

    retry: RetryPolicy = DEFAULT_RETRY

    @property
    def hurried(self) -> KernelsApi:
        """The same operations without retries, for a caller with an exception on its way."""
        return replace(self, retry=NO_RETRY)

    def _call(self, method: str, path: str, json: Any = None, seconds: float = 60.0) -> Operation[Any]:
        return parsed((yield from exchange(Request(method, path, json, read_timeout_seconds=seconds), self.retry)))

    def kernelspecs(self) -> Operation[dict[str, Any]]:
        """Return the server's kernelspecs as it describes them: ``default`` and ``kernelspecs``.

        Raises
        ------
        ApiNotFound
            If this is not the address of a Jupyter server at all.
        """
        reply = yield from exchange(Request("GET", "api/kernelspecs"), self.retry)
        if reply.status == 404:
            raise ApiNotFound("there is neither exec/v1 nor Jupyter's kernels API at this address; check the base URL")
        body = parsed(reply)
        if not isinstance(body, dict) or not isinstance(body.get("kernelspecs"), dict):
            raise UnexpectedAnswer("the server's api/kernelspecs is not a list of kernelspecs")
        return body

    def find(self, kernel_name: str | None) -> Operation[KernelSpecInfo]:
        """Return one kernelspec, the default one for None; raises `KernelSpecNotFound`."""
        body = yield from self.kernelspecs()
        name = kernel_name or str(body.get("default") or "python3")
        if name not in body["kernelspecs"]:  # Jupyter lists them in lower case, and starts them by any
            name = next((known for known in body["kernelspecs"] if known.lower() == name.lower()), name)
        if name not in body["kernelspecs"]:
            there = ", ".join(sorted(body["kernelspecs"])) or "none"
            raise KernelSpecNotFound(f"no kernelspec {name!r} is installed on the server; there are: {there}")
        described = body["kernelspecs"][name]
        spec = described.get("spec", {}) if isinstance(described, dict) else None
        if not isinstance(spec, dict):
            raise UnexpectedAnswer(f"the server's api/kernelspecs does not describe {name!r}")
        return KernelSpecInfo(name, str(spec.get("display_name", name)), str(spec.get("language") or ""))

    def list_kernels(self) -> Operation[list[dict[str, Any]]]:
        """Return the running kernels."""
        kernels = yield from self._call("GET", "api/kernels")
        if not isinstance(kernels, list) or not all(isinstance(kernel, dict) for kernel in kernels):
            raise UnexpectedAnswer("the server's api/kernels is not a list of kernels")
        return kernels

    def start(self, kernel_name: str, env: Mapping[str, str] | None = None) -> Operation[str]:
        """Start a kernel and return its id."""
        body = {"name": kernel_name} | ({"env": dict(env)} if env else {})
        # As a POST without a key it is not repeated after a lost answer, which would start a second kernel.
        model = yield from self._call("POST", "api/kernels", body, 180.0)
        if not isinstance(model, dict) or not isinstance(model.get("id"), str):
            raise UnexpectedAnswer("the server did not say which kernel it started")
        return str(model["id"])

    def state(self, kernel_id: str) -> Operation[str]:
        """Return a kernel's state as the server knows it; ``dead`` also if there is no such kernel any more."""
        # The server has started the kernel, so an outage is waited for.
        reply = yield from exchange(Request("GET", f"api/kernels/{segment(kernel_id)}"), self.retry, outages=True)
        # Only a 404 means that the kernel is gone; `parsed` raises the error of any other refusal.
        if reply.status == 404:
            return "dead"
        model = parsed(reply)
        return str(model.get("execution_state", "")) if isinstance(model, dict) else ""

    def delete(self, kernel_id: str) -> Operation[None]:
        """Shut a kernel down; one that is gone already is no error.

        A server fails (500) while it restarts a kernel that has died, and is asked again.
        """
        for pause_seconds in (*_DELETE_PAUSES_SECONDS, None):
            reply = yield from exchange(Request("DELETE", f"api/kernels/{segment(kernel_id)}"), self.retry)
            if reply.status in (404, 410):
                return
            if reply.status != 500 or pause_seconds is None:
                break
            yield Pause(pause_seconds)
        parsed(reply)

    def interrupt(self, kernel_id: str) -> Operation[None]:
        """Interrupt a kernel."""
        yield from self._call("POST", f"api/kernels/{segment(kernel_id)}/interrupt")

    def interrupt_once(self, kernel_id: str) -> Request:
        """Return the request that interrupts a kernel, for when its answer is not awaited."""
        return Request("POST", f"api/kernels/{segment(kernel_id)}/interrupt", read_timeout_seconds=_TIDY_SECONDS)

    def restart(self, kernel_id: str) -> Operation[None]:
        """Restart a kernel."""
        yield from self._call("POST", f"api/kernels/{segment(kernel_id)}/restart", seconds=180.0)
