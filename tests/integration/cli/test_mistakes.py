"""Mistakes that need a socket or a process: ports, other programs, closed pipes."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.mistakes import Mistake, write_files

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LIMIT_S = 60


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A program at the address that is yielded. It is called with each connection, which stays open."""
    listener, kept = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()

    def serve() -> None:
        try:
            while True:
                kept.append(listener.accept()[0])
                answer(kept[-1])
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for one in (listener, *kept):
            one.close()


def answer_as_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(HTTP)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (answer_as_http, "speaks HTTP/1 and not gRPC"),
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak gRPC"),
    ],
)
def test_a_port_that_is_no_grpc_is_named(
    run: CommandLine, answer: Callable[[socket.socket], object], cause: str
) -> None:
    with answering(answer) as address:
        Mistake("", 1, cause, "give the collector's port of gRPC (50051; 50080 is REST's").check(
            run("status", "--collector", address)
        )


def test_a_program_that_says_nothing(run: CommandLine) -> None:
    with answering(lambda connection: None) as address:
        Mistake("", 1, "did not answer within 0.3 s (--timeout)", "its port of gRPC").check(
            run("status", "--collector", address, "--timeout", "0.3s")
        )


@pytest.mark.parametrize(
    "mistake",
    [
        Mistake("status --collector 127.0.0.1:1", 1, "cannot reach the collector", "or set --collector"),
        Mistake(
            "history nope --collector 127.0.0.1:1", 1, "cannot reach the collector", "hyperscout collector"
        ),
        Mistake("status --token-file empty.txt", 2, "empty.txt: empty", "expected one line, the token"),
        Mistake("status --token-file notes.txt", 2, "notes.txt: not a token", "expected one word"),
    ],
    ids=lambda x: x.arguments,
)
def test_a_collector_that_cannot_be_asked(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    mistake.check(run(*mistake.arguments.split()))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hyperscout_cli.main", *arguments]


@pytest.mark.parametrize(
    ("process", "flag", "setting"),
    [
        ("collector", "--listen", "listen"),
        ("collector", "--http-listen", "http_listen"),
        ("collector", "--rest-listen", "rest_listen"),
        ("agent", "--metrics-port", "metrics.port"),
    ],
)
def test_a_port_in_use_is_named_with_its_setting(
    tmp_path: Path, process: str, flag: str, setting: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        flags = [flag, str(port)]
        if process == "collector":
            free = dict.fromkeys(("--listen", "--http-listen", "--rest-listen"), "127.0.0.1:0")
            given = free | {flag: f"127.0.0.1:{port}", "--data-dir": str(tmp_path)}
            flags = [word for pair in given.items() for word in pair]
        ran = subprocess.run(
            command(process, *flags), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    assert ran.returncode == 1
    assert f"{setting}: port {port} of 127.0.0.1 is in use: " in ran.stderr
    assert f"or set {setting} to another port" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("redirected", "code"),
    [("| head -c 1 >/dev/null", 0), (">&-", 0), ("2>&-", 0), (">&- 2>&- <&-", 0), (">/dev/full", 1)],
)
def test_closed_streams_give_no_traceback(tmp_path: Path, redirected: str, code: int) -> None:
    write_files(tmp_path)
    line = " ".join(command("tree", "--topology", "fabric.json", "-o", "json"))
    script = f"set -o pipefail; {line} {redirected}"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == code, ran
    assert "Traceback" not in ran.stderr
    assert ran.stderr == ("error: No space left on device\n" if code else "")


@pytest.mark.parametrize(
    ("words", "code"), [("infer --ibnetdiscover -", 0), ("get nodes nope --topology fabric.json", 1)]
)
def test_a_closed_standard_error_changes_no_exit_code(tmp_path: Path, words: str, code: int) -> None:
    """`infer` writes a warning for each of many lines; the reader of standard error has ended."""
    write_files(tmp_path)
    line = " ".join(command(*words.split()))
    script = f"exec 3> >(exec >&- <&-); wait $!; cat fabric.txt /etc/passwd | {line} >/dev/null 2>&3"
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, timeout=LIMIT_S, check=False)
    assert ran.returncode == code
