"""What is shown to a collector: files that are read each time, and what is wrong with some of them."""

from pathlib import Path

import pytest
from hyperscout_runtime.credentials import Credentials, CredentialsError
from support.identities import Family


def test_a_name_to_look_for(family: Family) -> None:
    assert family.client().options() == ()
    named = family.client(server_name="collector.hyperscout.svc")
    assert named.options() == (("grpc.ssl_target_name_override", "collector.hyperscout.svc"),)


def test_pairs_that_do_not_fit(family: Family, tmp_path: Path) -> None:
    one, other = family.client("node/a"), family.client("node/b")
    assert one.for_channel() is not None
    with pytest.raises(CredentialsError, match="are no certificate and its key"):
        Credentials(ca=family.ca, cert=one.cert, key=other.key).for_channel()
    junk = tmp_path / "ca.crt"
    for content in ("junk", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ä"):
        junk.write_text(content)
        with pytest.raises(CredentialsError, match=r"ca.crt: no certificates in PEM"):
            Credentials(ca=junk).for_channel()


async def test_an_address_learnt_later_is_checked_too(family: Family, tmp_path: Path) -> None:
    token = tmp_path / "token"
    for credentials, words in (
        (Credentials(), "not encrypted"),
        (Credentials(token_file=token), "never sent in the clear"),
        (Credentials(token_file=token, insecure=True), "never sent in the clear"),
    ):
        with pytest.raises(CredentialsError, match=words):
            credentials.connect("10.0.0.1:50051", ())
    for credentials in (family.client(token_file=token), Credentials(insecure=True)):
        await credentials.connect("10.0.0.1:50051", ()).close()
