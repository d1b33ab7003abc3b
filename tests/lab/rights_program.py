"""Runs inside a container, by its own Python: tries what must not work, and prints what came of it as JSON.

Sent as text (`python3 -c`), so it imports nothing of ours, and little of the standard library: an image holds
no more than its program needs. Everything that it tries would be undone or do nothing where it worked.
"""

import base64
import errno
import fcntl
import json
import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

# Where Kubernetes puts the token for its own API, unless it is told not to.
DEFAULT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SECRETS = ("/var/run/secrets", "/run/secrets", "/etc/hyperscout", "/etc/kubernetes", "/var/lib/kubelet")
FOLDERS = ("/", "/etc", "/usr", "/opt", "/var", "/root", "/etc/hyperscout/config", "/sys", "/proc/sys/kernel")
# What a node's agent could be after: all Secrets, the nodes, the tree itself, tokens of others.
PATHS = (
    "/api/v1/nodes",
    "/api/v1/secrets",
    "/api/v1/namespaces/hyperscout/secrets",
    "/apis/topology.volcano.sh/v1alpha1/hypernodes",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
)
LOW_PORT = 1023
TIMEOUT_S = 5.0
MAX_BYTES = 65536


def outcome(attempt: Callable[[], Any]) -> str:
    """ "done", or the name of the error."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "done"


def process(pid: str) -> dict[str, str]:
    """What the kernel says of a process: capabilities, identity, seccomp."""
    with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
        pairs = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    wanted = (
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Uid",
        "Gid",
        "Groups",
    )
    return {name: pairs.get(name, "").strip() for name in wanted}


def write_to(folder: str) -> None:
    path = os.path.join(folder, ".hyperscout-tried")  # noqa: PTH118
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    os.unlink(path)  # noqa: PTH108


def raw_socket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def touch_interface() -> None:
    """Set lo's flags to what they are: SIOCSIFFLAGS needs CAP_NET_ADMIN all the same (netdevice(7))."""
    get_flags, set_flags = 0x8913, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, get_flags, struct.pack("16sH14x", b"lo", 0))
        fcntl.ioctl(any_socket, set_flags, found)


def low_port() -> None:
    """Where a node's own services are: needs CAP_NET_BIND_SERVICE, unless the network says otherwise."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", LOW_PORT))


def other_user() -> None:
    """In a child: where it worked it would not come back."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.setuid(12345)
        except OSError as error:
            code = error.errno or 1
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def make_device() -> None:
    path = "/tmp/.hyperscout-tried"
    os.mknod(path, 0o020600, os.makedev(1, 3))
    os.unlink(path)  # noqa: PTH108


def root_options() -> str:
    """How / is mounted for the container's first process (proc(5), mountinfo)."""
    lines = (line.split() for line in read("/proc/1/mountinfo").splitlines())
    return next(fields[5] for fields in lines if fields[4] == "/")


def files_below(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        if "/..20" not in path:  # where the kubelet keeps what its links point to
            yield from (os.path.join(path, name) for name in names if name != "..data")  # noqa: PTH118


def api_address() -> tuple[str, int]:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    return host, int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))


def get(address: tuple[str, int], path: str, token: str) -> str:
    """The status code of an answer, "" with no token shown; or the name of the error. The server is believed
    blindly, as an intruder would."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    request = f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\n{shown}Connection: close\r\n\r\n"
    try:
        with (
            socket.create_connection(address, TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=address[0]) as connection,
        ):
            connection.sendall(request.encode())
            return connection.recv(MAX_BYTES).split(b" ")[1].decode("ascii", "replace")
    except (OSError, IndexError) as error:
        return type(error).__name__


def claims(token: str) -> dict[str, Any]:
    """The audience and the subject of the token (RFC 7519); nothing of it that could be used."""
    part = token.split(".")[1]
    found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    bound = found.get("kubernetes.io", {})
    return {
        "audiences": found.get("aud"),
        "lasts_s": found["exp"] - found["iat"],
        "node": bound.get("node", {}).get("name"),
        "pod": bound.get("pod", {}).get("name"),
    }


def read(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read(MAX_BYTES).strip()
    except OSError:
        return ""


def facts(token_file: str, kubelet: str) -> dict[str, Any]:
    """`token_file`: the pod's own; `kubelet`: host of one that might answer, "" = none is asked."""
    token = read(token_file)
    asked = {}
    for whose, shown in (
        ("its own token", token),
        ("no token", ""),
        ("the default token", read(DEFAULT_TOKEN)),
    ):
        if shown or whose == "no token":
            asked[whose] = {path: get(api_address(), path, shown) for path in PATHS}
            if kubelet:
                asked[whose]["kubelet"] = get((kubelet, 10250), "/pods", shown)
    attempts: dict[str, Callable[[], None]] = {
        "raw socket": raw_socket,
        "set an interface's flags": touch_interface,
        "become another user": other_user,
        "chroot": lambda: os.chroot("/"),
        "make a device": make_device,
    }
    if int(read("/proc/sys/net/ipv4/ip_unprivileged_port_start") or 0) > LOW_PORT:
        attempts["listen on a port of the system"] = low_port
    return {
        "process": process("1"),
        "writes": {folder: outcome(lambda folder=folder: write_to(folder)) for folder in FOLDERS},
        "root": root_options(),
        "attempts": {what: outcome(attempt) for what, attempt in attempts.items()},
        # /var/run is a link to /run in some images: the same files by two names.
        "files": sorted({path for folder in SECRETS for path in files_below(os.path.realpath(folder))}),
        "token": claims(token) if token else None,
        "asked": asked,
    }


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1], sys.argv[2])))
