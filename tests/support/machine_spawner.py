"""`MachineSpawner`: starts each of the pool's servers on a machine of tests; the test Hub's configuration loads it."""

from __future__ import annotations

from typing import ClassVar

from jupyterhub.spawner import SimpleLocalProcessSpawner

from tests.support.namespaces import Machine, process_in

_POOL_USER = "exec-pool"


class MachineSpawner(SimpleLocalProcessSpawner):  # type: ignore[misc]  # the library has no types
    """Starts a server of the pool's user on the machine that has had none for the longest time; others as usual.

    Attributes
    ----------
    machines : list of Machine
        The one to be taken first is the first. Set by the Hub's configuration.
    """

    machines: ClassVar[list[Machine]] = []
    cmd: list[str]

    async def start(self) -> tuple[str, int]:
        if self.user.name != _POOL_USER:
            return await super().start()  # type: ignore[no-any-return]
        machine = next(machine for machine in self.machines if not machine.processes())
        self.machines.remove(machine)
        self.machines.append(machine)
        self.ip, command = machine.address, self.cmd
        self.cmd = machine.command(*command, directory=self.home_dir)
        try:
            address = await super().start()
        finally:
            self.cmd = command
        self.pid = process_in(self.proc).pid  # gets the signals, also after a restart of the Hub
        return address  # type: ignore[no-any-return]
