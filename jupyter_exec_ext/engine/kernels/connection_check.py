"""Check of a connection to a kernel, before it is used: requests are answered, and output arrives.

A kernel that announces subscriptions (``iopub_welcome``, JEP 65) shows by itself that output arrives. With any other,
a request shows it, whose ``status`` arrives on iopub. Where a kernel can be made to wait for its readers, the check
agrees on that with it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import zmq

from ...errors import KernelStartTimeout
from ...protocol.kernel_messages import KernelMessage, language_told
from ...protocol.kernel_preparation import agrees_to_wait, keeping_request, waiting_request
from ...system.resources import is_out_of_resources, make_resources_error, require_descriptors

# iopub drops what is published before the subscription has arrived, so a lost status never comes later.
_PROBE_AGAIN_SECONDS = 0.1
_ASK_AGAIN_SECONDS = 2.0
# The descriptors that connecting a channel takes: a socket, and for a moment the file that it is at.
_DESCRIPTORS_PER_CHANNEL = 2


class CheckableConnection(Protocol):
    """Connection whose output channel is opened during its check."""

    waits: bool

    def send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> str:
        """Send a message and return its id."""

    def ask(self) -> None:
        """Ask the kernel for a sign of life on the control channel."""

    def connect_output(self) -> None:
        """Open the output channel."""


class ConnectionCheck:
    """Check of one connection.

    Parameters
    ----------
    can_wait : bool
        Whether the kernel can be made to wait when it writes faster than it is read.
    draws_plots : bool
        Whether such a kernel adds pictures to plots.
    may_be_busy : bool
        Whether it may be running something already, so that the shell channel does not answer.
    """

    def __init__(
        self, connection: CheckableConnection, *, can_wait: bool, draws_plots: bool, may_be_busy: bool
    ) -> None:
        self._connection = connection
        self._can_wait = can_wait
        self._draws_plots = draws_plots
        # A busy kernel still answers on the control channel, and publishes the status of that answer on iopub.
        self._channels = ("control", "shell") if may_be_busy else ("shell",)
        self._probes: set[str] = set()  # all of them: a late answer to an earlier one counts
        self._agreements: set[str] = set()
        self._replied = asyncio.Event()
        self._subscribed = asyncio.Event()
        self._agreed = asyncio.Event()
        self._info_reply: KernelMessage | None = None

    def take_in(self, message: KernelMessage) -> bool:
        """Take in a message if it belongs to the check; return whether it does."""
        if message.msg_type == "iopub_welcome":
            self._subscribed.set()
        elif message.parent_id in self._agreements:
            if message.msg_type == "execute_reply":
                self._connection.waits = agrees_to_wait(message.content)
                self._agreed.set()
        elif message.parent_id in self._probes:
            if message.channel == "shell":
                self._info_reply = message
            (self._subscribed if message.channel == "iopub" else self._replied).set()
        else:
            return False
        return True

    @property
    def language(self) -> str:
        """The language that the kernel says it runs; empty until it has answered on the shell channel."""
        return "" if self._info_reply is None else language_told(self._info_reply.content)

    async def check(self, timeout_seconds: float) -> None:
        """Wait until the kernel answers requests and our subscription is seen to work.

        Raises
        ------
        KernelStartTimeout
        OutOfResources
            If the kernel does not answer and we have no descriptor left to reach it with: ZeroMQ, which connects by
            itself, does not report that.
        """
        try:
            await asyncio.wait_for(self._check(), timeout_seconds)
        except asyncio.TimeoutError:
            raise KernelStartTimeout(f"the kernel did not answer within {timeout_seconds:g} s of its start") from None

    async def _check(self) -> None:
        self._connection.ask()  # not waited for: it shows whether the kernel answers there at all
        self._probe()
        await self._ask_until(self._replied, self._probe, _ASK_AGAIN_SECONDS)
        if self._can_wait:
            # Before the subscription: the mark of a socket in use cannot be changed without a loss.
            self._ask_to_wait()
            await self._ask_until(self._agreed, self._ask_to_wait, _ASK_AGAIN_SECONDS)
            try:
                self._connection.connect_output()
            except (OSError, zmq.ZMQError) as error:
                raise (make_resources_error(error) if is_out_of_resources(error) else error) from error
        if not self._subscribed.is_set():
            self._probe()
            await self._ask_until(self._subscribed, self._probe, _PROBE_AGAIN_SECONDS)
        if self._can_wait and self._connection.waits:
            # Once more: how much a kernel keeps unsent is a property of the connections it has by then. Waited for,
            # since ZeroMQ crashes where a connection is closed, such as the host's own, while its marks are changed.
            self._agreed.clear()
            self._keep_all()
            await self._ask_until(self._agreed, self._keep_all, _ASK_AGAIN_SECONDS)

    @staticmethod
    async def _ask_until(answered: asyncio.Event, ask: Callable[[], None], again_seconds: float) -> None:
        """Wait for the answer to what was asked; a request can be lost, with the connection that it was sent on."""
        while not answered.is_set():
            try:
                await asyncio.wait_for(answered.wait(), again_seconds)
            except asyncio.TimeoutError:
                # A connection that fails for want of a descriptor is tried again without a report. So check here.
                require_descriptors(_DESCRIPTORS_PER_CHANNEL)
                ask()

    def _probe(self) -> None:
        self._probes.update(self._connection.send(channel, "kernel_info_request", {}) for channel in self._channels)

    def _ask_to_wait(self) -> None:
        self._agreements.add(
            self._connection.send("shell", "execute_request", waiting_request(draws_plots=self._draws_plots))
        )

    def _keep_all(self) -> None:
        self._agreements.add(self._connection.send("shell", "execute_request", keeping_request()))
