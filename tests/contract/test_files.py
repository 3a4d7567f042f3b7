"""Files through every host and both clients: what goes up comes down, and what goes wrong is said."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext import errors
from jupyter_exec_ext.models import FileChange, FilesEvent
from tests.support.hosts import MAX_FILE_BYTES, MAX_SESSION_BYTES, MAX_SESSION_FILES, Host


def url(host: Host, session: Any, path: str) -> str:
    return f"{host.info.url}exec/v1/sessions/{session.id}/files{path}"


@pytest.mark.parametrize("size", [0, 1, 2**20, 3 * 2**20 + 17])
def test_what_goes_up_comes_down(fresh: Any, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "up").write_bytes(data)
    steps: list[tuple[int, int | None]] = []
    info = fresh.upload(tmp_path / "up", "in/here.bin", progress=lambda done, total: steps.append((done, total)))
    assert (info.path, info.size_bytes) == ("in/here.bin", size)
    assert info.sha256 == hashlib.sha256(data).hexdigest()
    assert not size or steps[-1] == (size, size)
    steps.clear()
    path = fresh.download("in/here.bin", tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert path == tmp_path / "here.bin"
    assert path.read_bytes() == data
    assert not size or steps[-1] == (size, size)
    assert fresh.read_file("in/here.bin") == data
    assert sorted(os.listdir(tmp_path)) == ["here.bin", "up"]


def test_files_are_where_the_code_runs(fresh: Any) -> None:
    fresh.write_file("data/in.txt", b"21")
    run = fresh.run("n = int(open('data/in.txt').read()); open('out.txt', 'w').write(str(2 * n))")
    assert run.ok
    assert fresh.read_file("out.txt") == b"42"
    assert [info.path for info in fresh.list_files()] == ["data/in.txt", "out.txt"]
    fresh.delete_file("out.txt")
    assert fresh.run("import os; print(os.path.exists('out.txt'))").stdout == "False\n"
    listed = fresh.list_files("data", sha256=True)
    assert [info.sha256 for info in listed] == [hashlib.sha256(b"21").hexdigest()]
    assert not listed.truncated


def test_a_file_object_is_uploaded_from_where_it_stands(fresh: Any, tmp_path: Path) -> None:
    source = io.BytesIO(b"skipped,sent")
    source.seek(8)
    assert fresh.upload(source, "a").size_bytes == 4
    (tmp_path / "named").write_bytes(b"x")
    with (tmp_path / "named").open("rb") as file:
        assert fresh.upload(file).path == "named"
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert fresh.upload(pipe, "p").size_bytes == 11
    assert fresh.read_file("a") + fresh.read_file("p") == b"sentfrom a pipe"
    with pytest.raises(ValueError, match="remote_path"):
        fresh.upload(io.BytesIO(b""))


def test_an_execution_reports_what_it_created_and_changed(fresh: Any) -> None:
    events: list[Any] = []
    code = "import os; os.mkdir('d'); open('d/a.csv', 'w').write('1'); open('b', 'w').write('22')"
    run = fresh.run(code, on_event=events.append)
    assert [(f.path, f.size_bytes, f.mime_type) for f in run.files] == [
        ("b", 2, "application/octet-stream"),
        ("d/a.csv", 1, "text/csv"),
    ]
    assert isinstance(events[-2], FilesEvent)
    assert events[-2].files == run.files == fresh.list_executions()[-1].files
    assert fresh.run("1").files == ()
    fresh.write_file("c", b"from outside")
    assert fresh.run("1").files == ()
    assert [f.path for f in fresh.run("open('b', 'a').write('3'); 1/0").files] == ["b"]
    dead = fresh.run("open('last', 'w').write('x'); import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert [f.path for f in dead.files] == ["last"]


def test_files_outlive_the_session_and_its_restarts(client: Any) -> None:
    with client.session() as session:
        session.run("open('kept', 'w').write('1')")
        session.restart()
        assert session.run("print(open('kept').read())").stdout == "1\n"
        session.run("import shutil, os; shutil.rmtree(os.getcwd())")
        session.restart()
        assert session.run("open('again', 'w').write('2')").ok
    assert session.read_file("again") == b"2"
    with pytest.raises(errors.SessionEnded):
        session.write_file("new", b"")
    session.delete_file("again")
    assert session.list_files() == []


def test_sessions_do_not_share_files(client: Any) -> None:
    with client.session() as one, client.session() as other:
        one.write_file("mine", b"1")
        assert other.list_files() == []
        with pytest.raises(errors.FileNotFound):
            other.read_file("mine")


def test_quotas_hold_and_are_named(host: Host, fresh: Any, tmp_path: Path) -> None:
    del host
    with (tmp_path / "big").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(errors.QuotaExceeded, match=f"{MAX_FILE_BYTES} bytes"):
        fresh.upload(tmp_path / "big")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb") as end:
        end.write(b"not more than a pipe holds")
        end.close()
        fresh.upload(pipe, "small")
    os.truncate(tmp_path / "big", MAX_FILE_BYTES)
    fresh.upload(tmp_path / "big", "one")
    os.truncate(tmp_path / "big", MAX_SESSION_BYTES - MAX_FILE_BYTES)
    with pytest.raises(errors.QuotaExceeded, match=f"{MAX_SESSION_BYTES} bytes together"):
        fresh.upload(tmp_path / "big", "two")
    fresh.run(f"for n in range({MAX_SESSION_FILES}): open(f'{{n}}', 'w').close()")
    with pytest.raises(errors.QuotaExceeded, match=f"{MAX_SESSION_FILES} files"):
        fresh.write_file("more", b"")
    assert {info.path for info in fresh.list_files()} >= {"one", "small"}
    assert not {info.path for info in fresh.list_files()} & {"two", "more", "big"}


def test_an_unannounced_length_does_not_get_past_the_quota(host: Host, fresh: Any) -> None:
    def body() -> Any:
        for _ in range(MAX_FILE_BYTES // 2**20 + 8):
            yield b"x" * 2**20

    try:
        answer = requests.put(url(host, fresh, "/x"), data=body(), headers=host.info.auth_headers, timeout=60)
        if (host.name, answer.status_code) != ("hub", 503):  # the proxy's word for a server that hung up
            assert (answer.status_code, answer.json()["code"]) == (413, "quota_exceeded")
    except requests.ConnectionError:
        pass  # cut off while it still sent
    assert fresh.list_files() == []
    assert fresh.run("import os; print(os.listdir())").stdout == "[]\n"


NAMES = [
    "a b.txt",
    "a+b c.txt",
    "100%.txt",
    "%41.txt",
    "%2e%2e",
    "a?b#c",
    "a&b=c;d",
    'quo"te.txt',
    "back\\slash",
    "cr\rlf\nx",
    "cr\r\nSet-Cookie: a=b",
    "tab\there",
    "\x7f\x1b[31m",
    "ü.txt",
    "日本語.csv",
    "🙂.png",
    "e\u0301 é",
    "\u202egnp.exe",
    "\u2028\u2029",
    "...",
    "..a",
    ".hidden",
    "-rf",
    "~",
    "*",
    "'single'",
    "a:b",
    "http:",
    "C:\\x",
    "con",
    "trailing.",
    "trailing ",
    " leading",
    "x" * 255,
    "ü" * 127,
    "🙂" * 63,
    "{path}",
    "$(touch x)",
    "`x`",
    "<img src=x onerror=alert(1)>",
]
NAMES += [f"{chr(n)}{n}" for n in [*range(1, 47), *range(48, 127), *range(0xA0, 0x100)]]


@pytest.mark.timeout(120)
def test_every_name_makes_the_round_trip(host: Host, fresh: Any, tmp_path: Path) -> None:
    assert len(NAMES) >= 200
    for number, name in enumerate(NAMES):
        assert fresh.write_file(name, b"%d" % number).path == name
    listed = {info.path for info in fresh.list_files()}
    assert listed == set(NAMES)
    assert fresh.run(f"import os; print(set(os.listdir()) == {set(NAMES)!r})").stdout == "True\n"
    for number, name in enumerate(NAMES):
        path = fresh.download(name, tmp_path)
        assert (path.name, path.read_bytes()) == (name, b"%d" % number)
    browser = requests.Session()
    for name in NAMES:
        quoted = requests.utils.quote(name, safe="")  # type: ignore[attr-defined]
        answer = browser.get(url(host, fresh, f"/{quoted}"), headers=host.info.auth_headers, timeout=30)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"] == "sandbox"
        disposition = answer.headers["Content-Disposition"]
        assert disposition.startswith('attachment; filename="')
        assert requests.utils.unquote(disposition.partition("*=UTF-8''")[2]) == name  # type: ignore[attr-defined]
        assert "a" not in answer.cookies


@pytest.mark.parametrize("path", ["", "/x", "a//b", "../x", "a/../b", ".", "a\0b", "x" * 256, "\udcff"])
@pytest.mark.parametrize("verb", ["read_file", "delete_file"])
def test_a_path_that_is_none_is_refused(session: Any, path: str, verb: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        getattr(session, verb)(path)


@pytest.mark.parametrize(
    "path",
    ["/..", "/%2e%2e/x", "/a/%2e%2e/b", "//etc/passwd", "/%2Fetc%2Fpasswd", "/a//b", "/a/", "/%00", "/%ff", "/."],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_the_server_refuses_it_as_well(host: Host, session: Any, path: str, method: str) -> None:
    if host.name == "hub":
        pytest.skip("the Hub's proxy tidies paths up, and answers those that are not UTF-8, before a server sees them")
    whole = url(host, session, path)
    prepared = requests.Request(method, whole, headers=host.info.auth_headers, data=b"x").prepare()
    prepared.url = whole  # as it is, where requests would tidy it up
    with requests.Session() as http:
        answer = http.send(prepared, timeout=30)
    assert answer.status_code in (400, 404, 405)
    assert "Traceback" not in answer.text


def test_what_is_no_file_is_refused(session: Any) -> None:
    code = "import os; os.makedirs('dir', exist_ok=True); os.path.lexists('link') or os.symlink('/etc/passwd', 'link')"
    assert session.run(f"{code}; os.path.exists('fifo') or os.mkfifo('fifo')").ok
    for path in ("dir", "link", "fifo"):
        with pytest.raises(errors.NotAFile):
            session.read_file(path)
    for path in ("no", "dir/no"):
        with pytest.raises(errors.FileNotFound):
            session.read_file(path)
        with pytest.raises(errors.FileNotFound):
            session.delete_file(path)


def test_a_local_file_that_is_missing_is_a_local_error(session: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        session.upload(tmp_path / "no")
    session.write_file("there", b"1")
    with pytest.raises(FileNotFoundError):
        session.download("there", tmp_path / "no" / "x")
    with pytest.raises(errors.FileNotFound):
        session.download("not there", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_half_an_upload_is_no_file(host: Host, fresh: Any) -> None:
    """The sender goes away in the middle: nothing is there, not even for a moment under another name."""
    import socket

    assert host.info.port is not None
    path = f"{host.info.base_url}exec/v1/sessions/{fresh.id}/files/half"
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: token {host.info.token}\r\n"
    with socket.create_connection((host.info.host, host.info.port)) as connection:
        connection.sendall(f"{head}Content-Length: 4000000\r\n\r\n".encode() + b"x" * 2_000_000)
        seen = "import os, time\nwhile not os.listdir(): time.sleep(0.01)\nprint(os.listdir()[0][:9])"
        assert fresh.run(seen, timeout_seconds=10).stdout == ".jupyter-\n"
        assert fresh.list_files() == []
    gone = "import os, time\nwhile os.listdir(): time.sleep(0.01)"
    assert fresh.run(gone, timeout_seconds=10).ok
    assert fresh.list_files() == []


def test_a_change_of_a_small_text_is_told_with_both_texts(fresh: Any) -> None:
    fresh.write_file("ü/plan.txt", b"one\n")
    result = fresh.run("open('ü/plan.txt', 'w').write('two\\n'); open('new.bin', 'wb').write(b'\\xff')")
    if fresh.record.isolation == "remote":
        with pytest.raises(errors.FilesNotAvailable):
            fresh.file_change("ü/plan.txt")
        return
    mtimes = {file.path: file.mtime for file in result.files}
    assert fresh.file_change("ü/plan.txt", mtimes["ü/plan.txt"]) == FileChange("ü/plan.txt", "one\n", "two\n")
    assert fresh.file_change("ü/plan.txt") == FileChange("ü/plan.txt", "one\n", "two\n")
    for path in ("new.bin", "nothing.txt"):
        with pytest.raises(errors.FileNotFound, match=path):
            fresh.file_change(path)
