"""The sign-in page, its cookie, and where it leads."""

import re
from urllib.parse import quote

import pytest

from studio.api.keys import ApiKeys
from studio.api.sign_in import local_path
from tests.studio.access_site import BROWSER, KEY, OTHER_KEY, OWNER, Client, policy


def test_a_browser_is_sent_to_the_sign_in_page_and_comes_back() -> None:
    client = Client(policy(KEY))
    response = client("GET", "/show?tab=2&x=%20", headers=BROWSER)
    assert response.status_code == 303
    location = response.headers["location"]
    assert location == "/sign-in?next=" + quote("/show?tab=2&x=%20", safe="")
    form = client("GET", location, headers=BROWSER)
    assert form.status_code == 200
    assert 'type="password"' in form.text
    assert form.headers["cache-control"] == "no-store"
    target = re.search(r'name="next" value="([^"]*)"', form.text)
    assert target is not None
    target_path = target[1].replace("&amp;", "&")
    response = client("POST", "/sign-in", data={"key": f" {KEY} ", "next": target_path})
    assert response.status_code == 303
    assert response.headers["location"] == "/show?tab=2&x=%20"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    assert KEY not in cookie
    assert client("GET", "/show").json()["owner"] == OWNER
    # A restarted studio knows the cookie; one with another key does not.
    again = Client(policy(OTHER_KEY, KEY))
    again.cookies = client.cookies
    assert again("GET", "/show").json()["owner"] == OWNER
    changed = Client(policy(OTHER_KEY))
    changed.cookies = client.cookies
    assert changed("GET", "/show").status_code == 401


def test_programs_get_json_and_not_a_redirect() -> None:
    client = Client(policy(KEY))
    assert client("GET", "/show", headers={"Accept": "*/*"}).status_code == 401
    assert client("POST", "/show", headers=BROWSER).status_code == 401
    wrong = {**BROWSER, "Authorization": "Bearer x"}
    assert client("GET", "/show", headers=wrong).status_code == 401
    # A proxy in front with a password of its own does not stand in the way.
    assert client("GET", "/show", headers={**BROWSER, "Authorization": "Basic eDp5"}).is_redirect


def test_a_wrong_key_shows_the_form_again() -> None:
    response = Client(policy(KEY))("POST", "/sign-in", data={"key": "<b>", "next": '/"><script>'})
    assert response.status_code == 401
    assert "not a key" in response.text
    assert "<script>" not in response.text
    assert "set-cookie" not in response.headers


def test_sign_out() -> None:
    client = Client(policy(KEY))
    client("POST", "/sign-in", data={"key": KEY})
    assert client("GET", "/show").status_code == 200
    assert "Sign out" in client("GET", "/sign-out").text
    assert client("GET", "/show").status_code == 200  # a link alone signs nobody out
    assert client("POST", "/sign-out").headers["location"] == "/sign-in"
    assert client("GET", "/show").status_code == 401


def test_the_cookie_is_secure_behind_tls() -> None:
    forwarded = {"X-Forwarded-Proto": "https, http"}
    for headers, base in ((forwarded, "http://127.0.0.1:7860"), ({}, "https://127.0.0.1:7860")):
        client = Client(policy(KEY), base=base)
        response = client("POST", "/sign-in", data={"key": KEY}, headers=headers)
        assert response.headers["set-cookie"].endswith("; Secure")


def test_the_form_has_a_limit_and_odd_methods_are_refused() -> None:
    client = Client(policy(KEY))
    assert client("POST", "/sign-in", content=b"key=" + b"x" * 10_000).status_code == 413
    assert client("PUT", "/sign-in").status_code == 405
    assert client("POST", "/sign-in", content=b"\xff\x00&&==").status_code == 401


def test_without_keys_there_is_no_sign_in_page() -> None:
    assert Client(policy())("GET", "/sign-in").status_code == 404


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/a\r\nSet-Cookie: x=1",
        "evil.example",
        "",
        " /x",
    ],
)
def test_next_never_leads_elsewhere(target: str) -> None:
    assert local_path(target) == "/"
    response = Client(policy(KEY))("POST", "/sign-in", data={"key": KEY, "next": target})
    assert response.headers["location"] == "/"


def test_next_keeps_local_paths() -> None:
    for target in ("/", "/show?a=b&c=d", "/a/b#c", "/?q=https://x/"):
        assert local_path(target) == target


def test_session_tokens_expire_and_cannot_be_changed() -> None:
    now = 1000.0
    keys = ApiKeys((KEY, OTHER_KEY), clock=lambda: now)
    owner = keys.owner_of_key(KEY)
    assert owner == OWNER
    token = keys.session_token(owner)
    other = keys.owner_of_key(OTHER_KEY)
    assert other is not None
    assert keys.owner_of_session(token) == owner
    _, expiry, signature = token.split(".")
    for forged in (
        f"{other}.{expiry}.{signature}",
        f"{owner}.{int(expiry) + 1}.{signature}",
        f"{owner}.{expiry}.{signature[:-1]}",
        f"{owner}.{expiry}.",
        f"{owner}..",
        token + "0",
        "é." + token,
        "",
        "...",
    ):
        assert keys.owner_of_session(forged) is None, forged
    now = int(expiry) + 1.0
    assert keys.owner_of_session(token) is None


def test_keys_stay_out_of_the_policys_repr() -> None:
    assert KEY not in repr(policy(KEY))
