"""Corpus of hostile connections: raw bytes below messages, sockets that are closed, replaced, or answered by hand."""

from __future__ import annotations

from .trick import make_tricks

#: Each has bytes that are put among those which libzmq sends, by the channel that they are sent on.
_BYTES = {
    "garbage": "os.urandom(len(PADDING))",
    "zeros": "bytes(len(PADDING) * 10)",
    "text": "b'HTTP/1.1 200 OK\\r\\n\\r\\n' + PADDING.encode()",
    "reserved_flags": "bytes([0xF8, 10]) + bytes(10)",
    "command_with_more": "frame(b'\\x04PING' + PADDING.encode(), MORE | COMMAND)",
    "unknown_command": "frame(b'\\x07UNKNOWN' + PADDING.encode(), COMMAND)",
    "error_command": "frame(b'\\x05ERROR' + bytes([255]) + b'x' * 255, COMMAND)",
    "ready_again": "frame(b'\\x05READY\\x0bSocket-Type\\0\\0\\0\\x03PUB', COMMAND)",
    "ready_of_large_properties": """
        frame(b'\\x05READY\\xff' + b'n' * 255 + b'\\xff\\xff\\xff\\xff' + PADDING.encode(), COMMAND)
    """,
    "pings": "frame(b'\\x04PING\\0\\0context', COMMAND) * len(PADDING)",
    "giant_announced": "head(5 << 30) + PADDING.encode()",
    "largest_announced": "head((1 << 64) - 1) + PADDING.encode()",
    "giant_command_announced": "head(1 << 40, COMMAND) + PADDING.encode()",
    "negative_announced": "head(1 << 63) + PADDING.encode()",
    "just_below_the_bound_announced": "head((128 << 20) - 1) + PADDING.encode()",
    "multipart": "frame(PADDING.encode(), MORE) * 100",
    "multipart_of_empty_frames": "frame(b'', MORE) * 200_000",
    "short_frames_as_long_ones": "(head(1, MORE) + b'x') * 10_000",
}
_INJECTED = {
    f"{channel}_{name}": f"inject('{channel}', {data})"
    for name, data in _BYTES.items()
    for channel in ("iopub", "shell", "control", "stdin")
    if channel == "iopub" or name in ("garbage", "giant_announced", "multipart", "multipart_of_empty_frames")
}
_POSED = {
    "endless_frame": """
        def converse(peer):
            peer.sendall(head(5 << 30))
            while True: peer.sendall(bytes(1 << 20))
        pose('iopub', converse)
        time.sleep(60)
    """,
    "endless_multipart": """
        def converse(peer):
            while True: peer.sendall(frame(PADDING.encode(), MORE))
        pose('iopub', converse)
        time.sleep(60)
    """,
    "endless_empty_frames": """
        def converse(peer):
            while True: peer.sendall(frame(b'', MORE) * 10_000)
        pose('iopub', converse)
        time.sleep(60)
    """,
    "endless_commands": """
        def converse(peer):
            while True: peer.sendall(frame(b'\\x04PING\\0\\0' + PADDING[:16].encode(), COMMAND) * 1_000)
        pose('iopub', converse)
        time.sleep(60)
    """,
    "endless_shell_frame": """
        def converse(peer):
            peer.sendall(head(5 << 30))
            while True: peer.sendall(bytes(1 << 20))
        pose('shell', converse)
        time.sleep(60)
    """,
    "announced_and_silent": """
        def converse(peer):
            peer.sendall(head(120 << 20) + bytes(len(PADDING) * 20))
            time.sleep(60)
        for channel in ('iopub', 'stdin', 'control', 'shell'): pose(channel, converse)
        time.sleep(60)
    """,
    "byte_by_byte": """
        def converse(peer):
            for byte in frame(PADDING.encode()) * 10: peer.sendall(bytes([byte]))
        pose('iopub', converse)
        time.sleep(60)
    """,
    "greets_and_hangs_up": "pose('iopub', lambda peer: peer.close())\ntime.sleep(60)",
    "hangs_up_at_once": "pose('iopub', lambda peer: peer.close(), b'')\ntime.sleep(60)",
    "greets_in_text": "pose('iopub', lambda peer: None, b'HTTP/1.1 400 Bad Request\\r\\n' * 9)\ntime.sleep(60)",
    "greets_endlessly": """
        def converse(peer):
            while True: peer.sendall(b'\\xff' * 100_000)
        pose('iopub', converse, b'\\xff')
        time.sleep(60)
    """,
    "greets_never": "pose('shell', lambda peer: time.sleep(60), b'')\ntime.sleep(60)",
    "reads_never": """
        pose('control', lambda peer: time.sleep(60))
        pose('shell', lambda peer: time.sleep(60))
        time.sleep(60)
    """,
}
_SOCKETS = {
    "iopub_closed": "close_channel('iopub')\nprint(PADDING)",
    "shell_closed": "close_channel('shell')\nprint(PADDING)",
    "control_closed": "close_channel('control')\nprint(PADDING)",
    "stdin_closed": "close_channel('stdin')\nprint(PADDING)",
    "all_closed": "for channel in ('iopub', 'shell', 'control', 'stdin'): close_channel(channel)\nprint(PADDING)",
    "connections_cut_again_and_again": """
        until = time.monotonic() + FLOOD_SECONDS
        while time.monotonic() < until:
            for channel in ('shell', 'control', 'stdin'): close_channel(channel)
            time.sleep(0.01)
    """,
    "all_descriptors_closed": "print(PADDING)\nos.closerange(3, 1000)",
    "context_ended": "kernel.shell_stream.socket.context.destroy(linger=0)\nprint(PADDING)",
}
_REPLACED = {
    f"{channel}_socket_is_a_{kind}": f"""
        path = socket_path('{channel}')
        try:
            os.unlink(path)
            {make}
        except OSError as error:
            print(error)
        close_channel('{channel}')
        print(PADDING)
    """
    for channel in ("iopub", "shell")
    for kind, make in {
        "link": "os.symlink(outside() + '/passwd', path)",
        "link_to_itself": "os.symlink(path, path)",
        "directory": "os.mkdir(path)",
        "fifo": "os.mkfifo(path)",
        "file": "touch(path)",
    }.items()
}

CONNECTIONS = make_tricks({**_INJECTED, **_POSED, **_SOCKETS, **_REPLACED}, breaks_kernel=True)
