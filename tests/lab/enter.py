"""Run a program inside the lab, or start one of its machines: the one place that changes namespaces.

Run as a program, since only a process with a single thread can do this, and by itself (`python -I -S`), as
one runs for each command. The specification is its first argument, in JSON; the rest is the program to run:

    {"do": "wait", "pid": P, "cgroups": [...]}    join the namespaces of process P; exit as the program does
    {"do": "start", ...}                          likewise, but leave it running
    {"do": "machine", "netns": PATH, "own": [..]} make it the first process of a machine of its own

"start" and "machine" write the program's process id to file descriptor `tell`, as this machine counts;
"machine" also the id that it has in the lab. With nsenter(1) a program would outlive its nsenter, and the
caller would not know its process id.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

FLAGS = {  # sched.h: CLONE_NEW*
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
# The mount namespace last: until then /proc is this machine's.
JOINED = ("pid", "net", "uts", "ipc", "cgroup", "mnt")
MS_REC, MS_PRIVATE, PR_SET_PDEATHSIG = 16384, 1 << 18, 1
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(*kinds: str) -> None:
    flags = 0
    for kind in kinds:
        flags |= FLAGS[kind]
    checked(libc.unshare(flags), f"unshare({', '.join(kinds)})")
    if "mnt" in kinds:  # nothing that is mounted from here on may be seen outside
        checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount --make-rprivate /")


def die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def join_cgroups(folders: list[str], pid: int = 0) -> None:
    for folder in folders:
        Path(folder, "cgroup.procs").write_text(str(pid))


def join(pid: int) -> None:
    """Join all namespaces of a process; the one of process ids holds for children.

    Raises OSError, also if its mounts are those of this machine: what is mounted there would be seen here.
    """
    if Path(f"/proc/{pid}/ns/mnt").samefile("/proc/self/ns/mnt"):
        raise OSError(errno.EXDEV, f"process {pid} is not in the lab")
    opened = [(kind, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)) for kind in JOINED]
    for kind, fd in opened:
        checked(libc.setns(fd, FLAGS[kind]), f"setns({kind})")
        os.close(fd)
    os.chdir("/")


def become(argv: list[str], environment: dict[str, str] | None = None) -> None:
    """Become the program; never returns."""
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvpe(argv[0], argv, dict(os.environ) if environment is None else environment)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def wait(spec: dict[str, Any], argv: list[str]) -> int:
    """Run it to its end and return its exit status; it ends with us."""
    join_cgroups(spec["cgroups"])
    join(spec["pid"])
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        die_with_parent()
        become(argv)
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _: os.kill(child, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def start(spec: dict[str, Any], argv: list[str]) -> int:
    """Leave it running. Its parent is then the first process of its machine."""
    join_cgroups(spec["cgroups"])
    join(spec["pid"])
    child = os.fork()
    if child == 0:
        os.close(spec["tell"])
        os.setsid()
        become(argv)
    os.write(spec["tell"], json.dumps({"pid": child}).encode())
    return 0


def machine(spec: dict[str, Any], argv: list[str]) -> int:
    """Make the program the first process of a machine.

    A node gets process ids of its own (`own` names "pid"), so that all in it dies with this one.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    join_cgroups(spec["cgroups"])
    join(spec["pid"])
    if os.fork() == 0:
        ours.close()
        try:
            _machine(spec, argv, theirs)
        except OSError as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        os._exit(1)
    theirs.close()
    told: dict[str, int] = {}
    while "pid" not in told or "inner" not in told:
        body, extra, _, _ = ours.recvmsg(64, socket.CMSG_SPACE(12))
        if not body:
            return 1
        if body == b"first":  # the kernel names the sender, as we count here
            told["pid"] = struct.unpack("3i", extra[0][2])[0]
        else:
            told["inner"] = int(body)
    os.write(spec["tell"], json.dumps(told).encode())
    return 0


def _machine(spec: dict[str, Any], argv: list[str], tell: socket.socket) -> None:
    os.setsid()
    fd = os.open(spec["netns"], os.O_RDONLY | os.O_CLOEXEC)
    checked(libc.setns(fd, FLAGS["net"]), "setns(net)")
    os.close(spec["tell"])
    own = [kind for kind in spec["own"] if kind != "pid"]
    inner = os.getpid()
    if "pid" in spec["own"]:
        unshare("pid")
        inner = os.fork()
        if inner:
            tell.send(str(inner).encode())
            os._exit(0)
    else:
        tell.send(str(inner).encode())
    unshare(*own)
    tell.send(b"first")
    tell.close()
    become(argv)


def main(arguments: list[str]) -> int:
    spec = json.loads(arguments[0])
    try:
        return {"wait": wait, "start": start, "machine": machine}[spec["do"]](spec, arguments[1:])
    except OSError as error:
        sys.stderr.write(f"the lab cannot be entered: {error}\n")
        return 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
