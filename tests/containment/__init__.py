"""Attacks by code that runs in a kernel, and a world outside of it in which their effects are seen.

``probes`` collects the attacks, ``world`` plants what they are after, ``runner`` lets a kernel carry them out, and
``plain`` starts a kernel without any protection, for the control run. A test of a sandbox goes like this::

    with World() as world:                       # as the user that the server and its kernels run as
        client = ...                             # of a kernel that was started with world.work as its directory
        found = run_probes(client, world, restart)
        assert found.open == []
        assert found.errors == {}

The server's environment is that of the test's own process while the world exists: a kernel that is started within the
``with`` has its chance to inherit it. `restart` ends the kernel and all that belongs to it, starts another one in its
place, and returns the new client, ready for use.
"""
