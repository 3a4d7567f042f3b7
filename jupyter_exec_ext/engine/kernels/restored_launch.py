"""Launch of a kernel from a checkpoint, instead of a launch by its provisioner."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from ...errors import CheckpointFailed, KernelStartFailed
from ...forkserver.forked_process import ForkedProcess
from ...forkserver.frozen_kernel import FrozenKernel
from ...protocol.kernel_preparation import MAX_UNSENT_MESSAGES
from ...system.worker_threads import in_thread
from ..concurrency import wait_shielded
from ..ports import ProcessOutput
from .death_report import KernelStderr

_READY_SECONDS = 20.0


class Files(Protocol):
    """Files that are ready to become those of a session."""

    async def swap(self) -> None:
        """Make them the session's; raises `CheckpointFailed`."""

    async def discard(self) -> None:
        """Remove what is left of them."""


class RestoredLaunch:
    """Launch of one kernel from a checkpoint.

    Parameters
    ----------
    frozen : FrozenKernel
        Process of the checkpoint.
    same_random : bool
        Whether the kernel draws the random numbers that the session would have drawn, instead of others.
    environment : mapping, optional
        Variables that it has instead of those of the checkpoint.
    directory : (str, str), optional
        Working directory of the checkpoint's session, and the one that the kernel has instead.
    stage : callable, optional
        Returns files of the checkpoint, which become the session's before the kernel goes on; None if it has none.
    new_output : callable, optional
        Makes the output of a kernel in a sandbox.
    checkpoint_pids : callable, optional
        Returns the processes of the session's checkpoints.
    """

    def __init__(
        self,
        frozen: FrozenKernel,
        *,
        same_random: bool,
        environment: Mapping[str, str] | None = None,
        directory: tuple[str, str] | None = None,
        stage: Callable[[], Awaitable[Files | None]] | None = None,
        new_output: Callable[[], ProcessOutput] | None = None,
        checkpoint_pids: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._new_output = new_output
        self._checkpoint_pids = checkpoint_pids
        self._output: ProcessOutput | None = None
        self._frozen = frozen
        self._same_random = same_random
        self._environment = dict(environment or {})
        self._directory = directory
        self._stage = stage
        self._files: Files | None = None
        self._process: ForkedProcess | None = None
        self._is_launched = False

    async def begin(self) -> None:
        """Fork the process, which then waits to be told what it is to be.

        Raises
        ------
        CheckpointFailed
            If the checkpoint is lost. Nothing has happened to the session's present kernel.
        OutOfResources, OSError
            If there can be no further process.
        """
        output = self._output = KernelStderr() if self._new_output is None else self._new_output()
        try:
            forking = asyncio.ensure_future(in_thread(self._fork, output.for_kernel))
            # Until it has ended it uses the descriptor, also if this is cancelled.
            self._process = await wait_shielded(forking)
            if self._stage is not None:
                self._files = await self._stage()
        except BaseException:
            output.close()
            raise

    def _fork(self, output: int) -> ForkedProcess:
        with open(os.devnull, "r+b") as nothing:
            return self._frozen.fork([nothing.fileno(), output if self.is_in_sandbox else 1, output])

    @property
    def stderr(self) -> KernelStderr | None:
        """Standard error of the kernel, once it has begun; None for one in a sandbox, which keeps its output itself."""
        return self._output if isinstance(self._output, KernelStderr) else None

    @property
    def output(self) -> ProcessOutput:
        """Output of the kernel's process, once it has begun."""
        assert self._output is not None
        return self._output

    @property
    def is_in_sandbox(self) -> bool:
        """True if the process is in the sandbox of a kernel that it can replace."""
        return self._new_output is not None

    @property
    def spared_pids(self) -> set[int]:
        """The processes that go on when all else in a sandbox ends."""
        begun = () if self._process is None else (self._process.pid,)
        return {self._frozen.pid, *self._checkpoint_pids(), *begun}

    async def release(self) -> None:
        """End a process that was begun, if it was not made a kernel, and remove what is left of the files."""
        if self._process is not None:
            self._process.channel.close()
            self._process = None
        if self._output is not None and not self._is_launched:
            self._output.close()
        files, self._files = self._files, None
        if files is not None:
            await files.discard()

    @contextmanager
    def replacing(self, provisioner: Any) -> Iterator[None]:
        """Have a provisioner launch this process, instead of one of its own."""
        provisioner.launch_kernel = partial(self.launch, provisioner)
        try:
            yield
        finally:
            del provisioner.launch_kernel

    def take_place_in(self, manager: Any) -> None:
        """Have a kernel manager, which has no provisioner yet, launch this process."""
        launch = manager._async_launch_kernel

        async def launch_here(command: list[str], **options: Any) -> Any:
            del manager._async_launch_kernel  # a later start is not this one
            with self.replacing(manager.provisioner):
                return await launch(command, **options)

        manager._async_launch_kernel = launch_here

    async def replace_kernel_of(self, provisioner: Any, kill: Callable[[], Awaitable[None]]) -> None:
        """Make the process the kernel of a provisioner in whose sandbox it is; `kill` ends the sandbox if that fails.

        Raises
        ------
        CheckpointFailed
            If the process has ended, with another kernel of the session; the present one stays.
        KernelStartFailed
            As `launch`. The sandbox has ended.
        """
        if self._process is None or self._process.is_gone:
            raise CheckpointFailed("the session was restarted meanwhile; its checkpoints have ended")
        try:
            try:
                await provisioner.end_kernel(self.spared_pids)
            except RuntimeError as error:
                raise KernelStartFailed(f"{error}; the session's state is lost") from error
            await self.launch(provisioner)
        except BaseException:
            await kill()  # its first process would be taken for a kernel that lives
            raise

    async def launch(self, provisioner: Any, *_: Any, **options: Any) -> Any:
        """Make the process that was begun the kernel of a provisioner, as its `launch_kernel` does.

        Raises
        ------
        KernelStartFailed
            If it could not be made a kernel, or its files could not be replaced; the session's state is lost.
        """
        process, self._process = self._process, None
        assert process is not None
        told = {
            "connection_file": provisioner.parent.connection_file,
            "max_unsent_messages": MAX_UNSENT_MESSAGES,
            "environment": self._environment,
            "directory": self._directory,
            "same_random": self._same_random,
        }
        if self._files is not None:
            try:
                await self._files.swap()  # the old kernel has ended, and the new one has not begun
            except CheckpointFailed as error:
                process.kill()
                raise KernelStartFailed(f"{error.message}; the session's state is lost") from error
        if self.is_in_sandbox:
            provisioner.adopt(process, self.output)
        else:  # as `LocalProvisioner.launch_kernel` leaves it
            provisioner.process = process
            provisioner.pid = provisioner.pgid = process.pid
        self.output.close_write_end()
        await in_thread(process.tell, json.dumps(told).encode() + b"\n")
        if not await in_thread(process.first_word, _READY_SECONDS):
            process.kill()
            raise KernelStartFailed("the checkpoint could not be made a kernel again; the server's log may say why")
        self._is_launched = True
        return provisioner.connection_info
