"""Stand-ins for NCCL, the CUDA runtime and nccl-tests, so that everything around them is the real thing.

The libraries are C, built by gcc, and two processes that load them really meet over TCP at the address that
the unique id carries: each operation tells the other rank what it is and how much, and fails where the ranks
do not do the same. The environment makes them fail: STUB_NCCL=CALL:WHAT (see the C), in rank STUB_NCCL_RANK
alone if that is set.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hyperscout_agent.probes.nccl import NcclCommands

from support.waiting import TIMEOUT_S

CUDA = r"""
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
int cudaGetDeviceCount(int *n) { const char *e = getenv("STUB_GPUS"); *n = e ? atoi(e) : 1; return 0; }
int cudaSetDevice(int d) { return d == 0 ? 0 : 101; }
int cudaMalloc(void **p, size_t n) { *p = malloc(n); return *p && n ? 0 : 2; }
int cudaMemset(void *p, int v, size_t n) { return p && v == 0 && n ? 0 : 1; }
int cudaFree(void *p) { free(p); return 0; }
int cudaStreamCreate(void **s) { *s = malloc(1); return 0; }
int cudaStreamSynchronize(void *s) { return s ? 0 : 1; }
int cudaStreamDestroy(void *s) { free(s); return 0; }
int cudaEventCreate(void **e) { *e = calloc(1, sizeof(struct timespec)); return 0; }
int cudaEventRecord(void *e, void *s) { return s ? clock_gettime(CLOCK_MONOTONIC, e) : 1; }
int cudaEventElapsedTime(float *ms, void *a, void *b) {
  struct timespec *x = a, *y = b;
  *ms = (y->tv_sec - x->tv_sec) * 1e3 + (y->tv_nsec - x->tv_nsec) / 1e6;
  return 0;
}
const char *cudaGetErrorString(int e) { return e == 2 ? "out of memory" : "cuda trouble"; }
"""

NCCL = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
typedef struct { char internal[128]; } Id;
typedef struct { int fd; int rank; } Comm;
typedef struct { int what; size_t count; } Op;
static int listener = -1, rank_is = -1;

/* What the environment wants of this call: 0 = go on, else the status. "hang" never returns. */
static int trouble(const char *call) {
  const char *e = getenv("STUB_NCCL"), *r = getenv("STUB_NCCL_RANK");
  size_t n = strlen(call);
  if (!e || strncmp(e, call, n) || e[n] != ':' || (r && rank_is >= 0 && atoi(r) != rank_is)) return 0;
  if (!strcmp(e + n + 1, "hang")) for (;;) pause();
  if (!strcmp(e + n + 1, "crash")) abort();
  if (!strcmp(e + n + 1, "print")) { printf("NCCL INFO junk {\"id\": 7}\n"); fflush(stdout); return 0; }
  return atoi(e + n + 1);
}
int ncclGetVersion(int *v) { *v = 22903; return 0; }
const char *ncclGetErrorString(int e) { return e == 6 ? "remote process exited" : "unhandled system error"; }
int ncclGetUniqueId(Id *id) {
  int e = trouble("id");
  if (e) return e;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (void *)&a, n) || listen(listener, 1) || getsockname(listener, (void *)&a, &n)) return 2;
  memset(id, 0, sizeof *id); /* zeros in front: an id is bytes, and no text */
  memcpy(id->internal + 8, &a, sizeof a);
  memset(id->internal + 120, 0x5a, 8);
  return 0;
}
int ncclCommInitRank(Comm **out, int ranks, Id id, int rank) {
  struct sockaddr_in a;
  int fd, e;
  rank_is = rank;
  if ((e = trouble("init"))) return e;
  memcpy(&a, id.internal + 8, sizeof a);
  if (ranks != 2 || id.internal[0] || id.internal[127] != 0x5a) return 4;
  if (rank == 0) fd = accept(listener, 0, 0);
  else { fd = socket(AF_INET, SOCK_STREAM, 0); if (connect(fd, (void *)&a, sizeof a)) return 2; }
  if (fd < 0) return 2;
  *out = malloc(sizeof **out);
  (*out)->fd = fd, (*out)->rank = rank;
  return 0;
}
static int tell(Comm *c, int what, size_t count) {
  Op op;
  memset(&op, 0, sizeof op);
  op.what = what, op.count = count;
  return send(c->fd, &op, sizeof op, MSG_NOSIGNAL) == sizeof op ? 0 : 6;
}
static int heard(Comm *c, int what, size_t count) {
  Op op;
  if (recv(c->fd, &op, sizeof op, MSG_WAITALL) != sizeof op) return 6;
  return op.what == what && op.count == count ? 0 : 5;
}
int ncclAllReduce(void *s, void *r, size_t n, int type, int op, Comm *c, void *stream) {
  int e = trouble("reduce");
  if (e) return e;
  if (!s || !r || s == r || type != 7 || op != 0 || !stream || !n) return 4;
  return (e = tell(c, 1, n)) ? e : heard(c, 1, n);
}
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
int ncclSend(void *s, size_t n, int type, int peer, Comm *c, void *stream) {
  int e = trouble("send");
  return e ? e : s && stream && type == 0 && peer == 1 - c->rank ? tell(c, 2, n) : 4;
}
int ncclRecv(void *r, size_t n, int type, int peer, Comm *c, void *stream) {
  return r && stream && type == 0 && peer == 1 - c->rank ? heard(c, 2, n) : 4;
}
int ncclCommDestroy(Comm *c) { int e = trouble("leave"); close(c->fd); free(c); return e; }
int ncclCommAbort(Comm *c) { close(c->fd); return 0; }
"""

# Takes the flags of nccl-tests and writes what they write. STUB_PERF=MODE:FILE makes another of it; FILE gets
# the ids of its processes.
PERF = """#!{python}
import json, os, subprocess, sys, time
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
mode, _, pids = os.environ.get("STUB_PERF", "").partition(":")
if mode == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(pids + ".new", "w") as f:
        f.write(f"{{os.getpid()}} {{child.pid}}")
    os.rename(pids + ".new", pids)
    time.sleep(600)
if mode == "fails":
    print("# nccl-tests 2.19.6\\n.. node-a pid 7: Test NCCL failure common.cu:1 'unhandled cuda error'")
    sys.exit(3)
if mode == "silent":
    sys.exit(0)
results, size = [], int(flags["-b"])
while size <= int(flags["-e"]):
    us = 10.0 + size / 1e4
    body = {{"time": us, "alg_bw": size / us / 1e3, "bus_bw": 1.75 * size / us / 1e3, "nwrong": 0.0}}
    if mode == "wrong":
        body["nwrong"] = 9.0
    if mode == "nan":
        body["time"] = "nan"
    results.append({{"size": size, "count": size // 4, "out_of_place": body, "in_place": body}})
    size *= int(flags["-f"])
config = {{"nthreads": 1, "ngpus": int(flags["-g"]), "devices": []}}
text = json.dumps({{"version": 3, "nccl_version": 22903, "config": config, "results": results}})
if mode == "junk":
    text = text[: len(text) // 2]
if mode == "link":
    os.symlink("/etc/passwd", flags["-J"])
    sys.exit(0)
with open(flags["-J"], "x") as f:
    f.write(text)
    if mode == "flood":
        while True:
            f.write(" " * 1_000_000)
            f.flush()
if mode == "calls":
    with open(pids, "a") as f:
        f.write(json.dumps(flags) + "\\n")
"""


def build(folder: Path) -> NcclCommands:
    """Build all of it; the commands that an agent is to be told."""
    libraries = {}
    for name, source in (("libcudart.so", CUDA), ("libnccl.so.2", NCCL), ("libempty.so", "int nothing;")):
        build_library(folder / name, source)
        libraries[name] = str(folder / name)
    perf = programs(folder)
    return NcclCommands(perf, perf, libraries["libnccl.so.2"], libraries["libcudart.so"])


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> NcclCommands:
    return build(tmp_path_factory.mktemp("nccl"))


def build_library(target: Path, source: str) -> None:
    """A shared library of this C."""
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(target), "-x", "c", "-"]
    subprocess.run(command, input=source.encode(), check=True, timeout=TIMEOUT_S)


def programs(folder: Path) -> tuple[str, ...]:
    """The program of nccl-tests alone."""
    path = folder / "perf"
    path.write_text(PERF.format(python=sys.executable))
    path.chmod(0o755)
    return (str(path),)


def children(of_pid: int | None = None, name: str = "nccl.worker") -> list[int]:
    """Processes under one whose command line has this name: workers of an agent that runs in this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    top = os.getpid() if of_pid is None else of_pid
    found = []
    for pid in parents:
        above = pid
        while above in parents and above != top:
            above = parents[above]
        if above == top and pid != top and name in command_line(pid):
            found.append(pid)
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether it still runs: one that has ended and was not asked about yet (a zombie) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def calls(file: Path) -> list[dict[str, Any]]:
    """The flags of each start of a program under STUB_PERF=calls:FILE."""
    return [json.loads(line) for line in file.read_text().splitlines()]
