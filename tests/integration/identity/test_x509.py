"""When certificates end, by real ones and damaged ones."""

import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hyperscout_collector.identity.x509 import not_after_s
from hypothesis import given
from hypothesis import strategies as st
from kube.pki import Authority
from support.identities import Family
from support.waiting import TIMEOUT_S


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """One that signs whatever it is asked to."""
    return Family(tmp_path).authority


@pytest.mark.parametrize("days", ["3", "-1", "20000"], ids=["soon", "past", "after 2050"])
def test_the_end_is_what_openssl_says(authority: Authority, days: str) -> None:
    pair = authority.issue("n", "/CN=n", san="URI:hyperscout://node/n", days=days)
    command = ["openssl", "x509", "-in", str(pair.cert), "-noout", "-enddate"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    end = datetime.strptime(said.strip(), "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    assert not_after_s(pair.cert.read_bytes()) == end.timestamp()


@given(st.binary(max_size=200))
def test_anything_else_is_no_certificate(der: bytes) -> None:
    pem = ssl.DER_cert_to_PEM_cert(der).encode()
    with pytest.raises(ValueError):
        not_after_s(pem)
    with pytest.raises(ValueError):
        not_after_s(der)


def test_a_certificate_that_is_cut_off_anywhere(authority: Authority) -> None:
    pem = authority.issue("n", "/CN=n").cert.read_text()
    der = ssl.PEM_cert_to_DER_cert(pem)
    for end in range(len(der)):
        with pytest.raises(ValueError):
            not_after_s(ssl.DER_cert_to_PEM_cert(der[:end]).encode())
