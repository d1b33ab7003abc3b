"""What the listener keeps and says, and the messages in which it says it."""

import socket
import threading
from pathlib import Path

from hyperscout_agent.lldp.listener import Listener
from support.waiting import TIMEOUT_S


def test_it_connects_when_the_agent_is_there_and_again_when_it_is_back(tmp_path: Path) -> None:
    """No port is needed for this: what a listener does first is to find its agent."""
    path = tmp_path / "s"
    listener = Listener(path, tmp_path / "no sysfs", None)
    thread = threading.Thread(target=listener.run, daemon=True)
    thread.start()
    try:
        for _ in range(2):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
                server.settimeout(TIMEOUT_S)
                server.bind(str(path))
                server.listen()
                peer, _ = server.accept()
                peer.close()
            path.unlink()
    finally:
        listener.ended = True
        thread.join(TIMEOUT_S)
    assert not thread.is_alive()
