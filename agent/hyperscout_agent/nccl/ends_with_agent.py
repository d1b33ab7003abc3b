"""Runs a program that ends with the agent, even if the agent is killed, so that no GPU job is left over.

    python -m hyperscout_agent.nccl.ends_with_agent AGENT_PID PROGRAM [ARGUMENT...]

The process executes PROGRAM. Linux kills it when the thread that started it ends (prctl(2),
PR_SET_PDEATHSIG). The setting is preserved across execve(2).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_NOT_RUN = 126
_NOT_FOUND = 127


class AgentGoneError(Exception):
    """The agent ended before this process had set its parent-death signal."""


def end_with(agent_pid: int) -> None:
    """Have the kernel kill this process when its parent, the agent, ends.

    Raises AgentGoneError when the agent has already ended.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != agent_pid:
        raise AgentGoneError(f"the agent {agent_pid} is gone")


def bound(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` as a child of this process and ends with this process."""
    return (sys.executable, "-m", "hyperscout_agent.nccl.ends_with_agent", str(os.getpid()), *argv)


def main(arguments: Sequence[str]) -> int:
    try:
        end_with(int(arguments[0]))
        os.execvp(arguments[1], list(arguments[1:]))  # noqa: S606 - no shell is the point
    except AgentGoneError as error:
        sys.stderr.write(f"{error}\n")
        return _NOT_RUN
    except OSError as error:
        sys.stderr.write(f"{arguments[1]}: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
