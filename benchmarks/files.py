"""Uploads and downloads: ours, the contents API beside it, and a file through the same HTTP stack with nothing else.

    python -m benchmarks.files [--mib N] [--contents-mib N] [--rounds N]

The contents API holds a file several times in memory as base64 in JSON, so it gets a smaller one; throughput is
compared, not time. The bare handler streams a file from and to the disk, without hashing, syncing or confinement.
"""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import requests

from jupyter_exec_ext import ExecClient

TOKEN = secrets.token_hex(16)
MIB = 2**20

BARE = """
import asyncio, sys, tornado.web
@tornado.web.stream_request_body
class Bare(tornado.web.RequestHandler):
    def prepare(self):
        self.request.connection.set_max_body_size(2**62)
        self.file = open(sys.argv[2], "rb" if self.request.method == "GET" else "wb")
    def data_received(self, chunk):
        self.file.write(chunk)
    async def get(self):
        while chunk := self.file.read(2**20):
            self.write(chunk)
            await self.flush()
    def put(self):
        self.file.close()
async def main():
    tornado.web.Application([("/", Bare)]).listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()
asyncio.run(main())
"""


def free_port() -> int:
    """Return a port that nothing listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str) -> None:
    """Wait until something answers."""
    for _ in range(600):
        try:
            requests.get(url, timeout=5, stream=True).close()
        except requests.ConnectionError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(url)


def drain(answer: requests.Response) -> None:
    """Read an answer as fast as it comes."""
    answer.raise_for_status()
    while answer.raw.read(MIB):
        pass


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of the file (default: 1024)")
    parser.add_argument("--contents-mib", type=int, default=64, help="the same for the contents API (default: 64)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default: 3)")
    args = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, size in (("big", args.mib), ("small", args.contents_mib)):
            block = os.urandom(MIB)
            with (home / name).open("wb") as file:
                for _ in range(size):
                    file.write(block)
        (home / "root").mkdir()
        port, bare_port = free_port(), free_port()
        environment = {**os.environ, "JUPYTER_TOKEN": TOKEN, "JUPYTER_DATA_DIR": str(home / "data")}
        options = [f"--ServerApp.port={port}", "--allow-root", "--no-browser", f"--ServerApp.root_dir={home / 'root'}"]
        for command in (
            [sys.executable, "-m", "jupyter_server", *options],
            [sys.executable, "-c", BARE, str(bare_port), str(home / "bare")],
        ):
            process = subprocess.Popen(
                command, env=environment, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        (home / "bare").write_bytes(b"")
        url, bare = f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{bare_port}/"
        wait_for(f"{url}api")
        wait_for(bare)
        session = stack.enter_context(stack.enter_context(ExecClient(url, TOKEN)).session())
        http = stack.enter_context(requests.Session())
        contents = f"{url}api/contents/small"
        ours = f"{url}exec/v1/sessions/{session.id}/files/big"
        headers = {"Authorization": f"token {TOKEN}"}

        def bare_up() -> None:
            with (home / "big").open("rb") as file:
                http.put(bare, data=file, timeout=600).raise_for_status()

        def contents_up() -> None:
            body = {"type": "file", "format": "base64"}
            data = base64.b64encode((home / "small").read_bytes()).decode()
            http.put(contents, json={**body, "content": data}, headers=headers, timeout=600).raise_for_status()

        def contents_down() -> None:
            answer = http.get(f"{contents}?type=file&format=base64", headers=headers, timeout=600)
            base64.b64decode(answer.json()["content"])

        contenders: dict[str, tuple[Callable[[], object], int]] = {
            "up    bare handler": (bare_up, args.mib),
            "up    ExecClient.upload": (lambda: session.upload(home / "big"), args.mib),
            "up    contents API": (contents_up, args.contents_mib),
            "down  bare handler": (lambda: drain(http.get(bare, stream=True, timeout=600)), args.mib),
            "down  exec/v1": (lambda: drain(http.get(ours, headers=headers, stream=True, timeout=600)), args.mib),
            "down  ExecClient.download": (lambda: session.download("big", home / "down"), args.mib),
            "down  contents API": (contents_down, args.contents_mib),
        }
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(args.rounds):
            for name, (act, size) in contenders.items():
                began = time.perf_counter()
                act()
                rates[name].append(size / (time.perf_counter() - began))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{args.mib} MiB ({args.contents_mib} MiB for the contents API), medians of {args.rounds}\n")
    print(f"{'':28}     MiB/s   x bare   x contents API")
    for name, median in medians.items():
        way = name[:6]
        floor, peer = medians[f"{way}bare handler"], medians[f"{way}contents API"]
        print(f"{name:28} {median:9.0f} {median / floor:8.2f} {median / peer:10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
