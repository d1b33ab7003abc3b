"""What the doctor makes of what was collected on a node: tables of facts and answers."""

import asyncio

import pytest
from hyperscout_agent.doctor.agent_page import ask_agent


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "upgrade"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "another program"),
        (b"HTTP/1.1 200 OK\r\n\r\n[1", "another program"),
        (b"SSH-2.0\r\n", "upgrade"),
        (b"", "upgrade"),
    ],
)
async def test_whatever_answers_in_the_agents_place_is_told(answer: bytes, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        found = await ask_agent("127.0.0.1", server.sockets[0].getsockname()[1])
    assert words in found.trouble
