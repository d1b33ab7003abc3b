"""What headers ask for: ETag, media types, gzip, and under which names the server may be asked."""

import grpc
import pytest
from hyperscout_collector.serve.http.hosts import Hosts
from hyperscout_collector.serve.http.problems import STATUS_OF, TITLES, ProblemError, of_code
from hyperscout_collector.serve.rest.rendered import OUTPUTS
from hyperscout_collector.serve.rest.responses import Etag, accepts, json_answer
from starlette.requests import Request

THERE = {name: kind for name, (kind, _) in OUTPUTS.items()}


def asked(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw})


@pytest.mark.parametrize(
    ("accept", "output"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/json", "json"),
        ("application/yaml", "hypernodes"),
        ("text/plain", "slurm-tree"),
        ("text/html, text/plain;q=0.5, */*;q=0.1", "slurm-tree"),
        ("application/*", "json"),
        ("application/json;q=0.2, application/yaml", "hypernodes"),
        ("APPLICATION/YAML", "hypernodes"),
        ("application/yaml;q=x, application/json", "json"),
    ],
)
def test_what_is_accepted_best(accept: str, output: str) -> None:
    assert accepts(asked(accept=accept) if accept else asked(), THERE) == output


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0", ";;,,;q=", "\xff"])
def test_what_there_is_not(accept: str) -> None:
    with pytest.raises(ProblemError) as caught:
        accepts(asked(accept=accept), THERE)
    assert caught.value.status == 406


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        ('W/"7-e"', True),
        ('"7-e"', True),
        ('"6-e", W/"7-e"', True),
        ("*", True),
        ('"6-e"', False),
        ('"7-f"', False),
        ("7-e", False),
        ("", False),
    ],
)
def test_what_is_known_is_not_sent_again(sent: str, known: bool) -> None:
    answer = Etag("7-e").known(asked(if_none_match=sent))
    assert (answer is not None) is known
    if answer is not None:
        assert (answer.status_code, answer.headers["etag"], answer.body) == (304, 'W/"7-e"', b"")


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [("gzip", True), ("br, gzip;q=0.1", True), ("*", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_large_answers_are_zipped_for_clients_that_accept_it(accepted: str, zipped: bool) -> None:
    large = json_answer(asked(accept_encoding=accepted), {"x": "y" * 5000})
    assert (large.headers.get("content-encoding") == "gzip") is zipped
    small = json_answer(asked(accept_encoding=accepted), {})
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:50080", "[::1]:50080", "10.1.2.3", "map.example:443"]
)
def test_our_own_names_may_be_used(host: str) -> None:
    Hosts(["Map.example"]).check(asked(host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:50080", "127.0.0.1.evil.example", "", "[", ":"]
)
def test_names_of_others_may_not(host: str) -> None:
    with pytest.raises(ProblemError, match="rest_hosts"):
        Hosts(["map.example"]).check(asked(host=host))
    Hosts(None).check(asked(host=host))  # where callers are authenticated


def test_two_names_or_none_are_no_name() -> None:
    two = Request({"type": "http", "headers": [(b"host", b"localhost"), (b"host", b"evil.example")]})
    for request in (two, asked()):
        with pytest.raises(ProblemError):
            Hosts([]).check(request)


def test_every_code_of_grpc_has_a_status() -> None:
    for code in grpc.StatusCode:
        problem = of_code(code, "no")
        assert 400 <= problem.status < 600
        assert problem.word in TITLES
    assert {word for _, word in STATUS_OF.values()} <= set(TITLES)


def test_a_field_of_a_message_is_named_as_json_has_it() -> None:
    problem = of_code(grpc.StatusCode.INVALID_ARGUMENT, "highest_tier_allowed: no such tier")
    assert problem.field == "highestTierAllowed"
    assert of_code(grpc.StatusCode.NOT_FOUND, "gang: none").field is None
