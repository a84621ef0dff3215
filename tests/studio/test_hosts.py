"""Host and Origin: what DNS rebinding and forged requests look like, and what they get."""

import pytest

from studio.api.access import AccessMiddleware
from tests.studio.access_site import BEARER, KEY, Client, code_of, policy, raw_scope, run_raw, site


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:7860",
        "LOCALHOST.",
        "app.localhost:7860",
        "127.0.0.1",
        "127.9.9.9:1",
        "[::1]:7860",
        "studio.example",
        "Studio.Example:8443",
    ],
)
def test_own_hosts_are_answered(host: str) -> None:
    rules = policy(hosts=("127.0.0.1", "studio.example:7860"))
    assert Client(rules)("GET", "/show", headers={"Host": host}).json()["owner"] == "local"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example@localhost",
        "localhost@evil.example",
        "localhost/evil.example",
        "localhost:7860:1",
        "localhost, evil.example",
        "192.168.1.5",
        "[::ffff:10.0.0.1]",
        "",
        ":7860",
        "[::1",
        "löcalhost",
    ],
)
def test_foreign_hosts_are_refused(host: str) -> None:
    response = Client(policy())("GET", "/show", headers={"Host": host.encode()})
    assert response.status_code == 403
    assert code_of(response) == "host_not_allowed"


def test_forwarded_hosts_count_for_nothing() -> None:
    headers = {
        "Host": "evil.example",
        "X-Forwarded-Host": "localhost",
        "Forwarded": "host=localhost",
    }
    assert Client(policy())("GET", "/show", headers=headers).status_code == 403


def test_with_a_key_the_machines_address_will_do() -> None:
    for host in ("192.168.1.5:7860", "[2001:db8::5]:7860"):
        headers = {**BEARER, "Host": host}
        assert Client(policy(KEY))("GET", "/show", headers=headers).status_code == 200
    assert Client(policy(KEY))("GET", "/show", headers={**BEARER, "Host": "evil.example"}).is_error


def test_open_answers_for_every_host() -> None:
    client = Client(policy(open=True))
    assert client("GET", "/show", headers={"Host": "anything.example"}).status_code == 200
    assert client("GET", "/show", headers={"Host": "a@b"}).status_code == 403


def test_a_tunnel_host_is_admitted_at_run_time_and_needs_the_key() -> None:
    rules = policy(KEY)
    client = Client(rules)
    headers = {"Host": "0123abcd.gradio.live", "Origin": "https://0123abcd.gradio.live"}
    assert client("POST", "/show", headers={**headers, **BEARER}).status_code == 403
    rules.admit_host("https://0123abcd.gradio.live")
    assert client("POST", "/show", headers={**headers, **BEARER}).status_code == 200
    assert client("POST", "/show", headers=headers).status_code == 401
    assert client("GET", "/show", headers={**BEARER, "Host": "x.gradio.live"}).status_code == 403


def test_a_bound_address_of_any_form_is_a_rule() -> None:
    for host in ("::1", "0.0.0.0", "localhost", "Studio.example"):
        policy(hosts=(host,))
    with pytest.raises(ValueError, match="no host name"):
        policy(hosts=("http://a/b",))


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1:3000",
        "http://localhost:7860",
        "http://127.0.0.1",
        "http://127.0.0.1:7860.evil.example",
        "http://127.0.0.1:7860@evil.example",
        "chrome-extension://abcdef",
        "file://",
    ],
)
def test_pages_of_other_sites_are_refused(method: str, origin: str) -> None:
    for rules, headers in ((policy(), {}), (policy(KEY), BEARER), (policy(open=True), {})):
        response = Client(rules)(method, "/show", headers={**headers, "Origin": origin})
        assert response.status_code == 403
        assert code_of(response) == "origin_not_allowed"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:7860", "127.0.0.1:7860"),
        ("http://[::1]:7860", "[::1]:7860"),
        ("http://localhost", "localhost:80"),
        ("https://studio.example", "studio.example"),
        ("https://studio.example", "studio.example:443"),
        ("https://studio.example", "127.0.0.1:7860"),  # a proxy that rewrites Host
        (None, "127.0.0.1:7860"),  # a program
    ],
)
def test_the_own_page_may_post(origin: str | None, host: str) -> None:
    rules = policy(hosts=("127.0.0.1", "studio.example"))
    headers = {"Host": host} | ({"Origin": origin} if origin else {})
    assert Client(rules)("POST", "/show", headers=headers).status_code == 200


def test_sign_in_cannot_be_posted_from_elsewhere() -> None:
    headers = {"Origin": "https://evil.example"}
    response = Client(policy(KEY))("POST", "/sign-in", data={"key": KEY}, headers=headers)
    assert response.status_code == 403


def test_two_host_headers_are_refused() -> None:
    app = AccessMiddleware(site(), policy())
    sent = run_raw(app, raw_scope("http", "/show", (b"host", b"evil.example")), [])
    assert sent[0]["status"] == 403
