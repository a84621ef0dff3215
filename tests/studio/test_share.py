"""The tunnel with a fake set-up: nothing here speaks to the internet or starts a program."""

import threading
import time
from pathlib import Path

import pytest

from studio.share import ShareFailed, close_tunnel, open_tunnel

Arguments = tuple[str, int, str, str | None, str | None]


class FakeSetup:
    """Answers like `gradio.networking.setup_tunnel`: an address, an error, or nothing for long."""

    def __init__(
        self, address: str = "", error: Exception | None = None, wait_s: float = 0
    ) -> None:
        self.address = address
        self.error = error
        self.wait_s = wait_s
        self.calls: list[Arguments] = []
        self.ended = threading.Event()

    def __call__(self, *arguments: object) -> str:
        self.calls.append(arguments)  # type: ignore[arg-type]
        time.sleep(self.wait_s)
        self.ended.set()
        if self.error is not None:
            raise self.error
        return self.address


class FakeTunnel:
    def __init__(self, port: int) -> None:
        self.local_port = port
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1


@pytest.fixture
def tunnels() -> object:
    from gradio import tunneling

    before = list(tunneling.CURRENT_TUNNELS)
    yield tunneling.CURRENT_TUNNELS
    tunneling.CURRENT_TUNNELS[:] = before


def test_the_address_is_https_and_the_running_port_is_used() -> None:
    setup = FakeSetup("http://0123abcd.gradio.live")
    assert open_tunnel(7861, setup=setup) == "https://0123abcd.gradio.live"
    ((host, port, token, server, certificate),) = setup.calls
    assert (host, port, server, certificate) == ("127.0.0.1", 7861, None, None)
    assert len(token) >= 32


def test_every_link_has_a_token_of_its_own() -> None:
    setup = FakeSetup("http://a.gradio.live")
    open_tunnel(7861, setup=setup)
    open_tunnel(7861, setup=setup)
    assert setup.calls[0][2] != setup.calls[1][2]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (RuntimeError("Could not get share link from Gradio API Server."), "Gradio API Server"),
        (OSError("read-only file system"), "read-only"),
        (ValueError("Could not create share URL.\nlogin to server failed"), "create share URL"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_failure_says_why_and_what_to_do_instead(error: Exception, word: str) -> None:
    with pytest.raises(ShareFailed) as caught:
        open_tunnel(7861, setup=FakeSetup(error=error))
    sentence = str(caught.value)
    assert word in sentence
    assert "ssh -N -L 7861:127.0.0.1:7861" in sentence
    assert "goes on serving" in sentence
    assert "\n" not in sentence
    assert caught.value.__cause__ is error


def test_no_address_is_a_failure() -> None:
    with pytest.raises(ShareFailed, match="no address"):
        open_tunnel(7861, setup=FakeSetup(""))


def test_a_tunnel_that_says_nothing_is_given_up(tunnels: list[FakeTunnel]) -> None:
    tunnel, other = FakeTunnel(7861), FakeTunnel(7999)
    tunnels += [tunnel, other]
    setup = FakeSetup("http://late.gradio.live", wait_s=0.3)
    began = time.monotonic()
    with pytest.raises(ShareFailed, match=r"within 0\.05 s"):
        open_tunnel(7861, timeout_s=0.05, setup=setup)
    assert time.monotonic() - began < 0.25
    assert (tunnel.kills, other.kills) == (1, 0)


def test_a_tunnel_that_opens_too_late_is_closed(tunnels: list[FakeTunnel]) -> None:
    late = FakeTunnel(7861)

    class LateSetup(FakeSetup):
        def __call__(self, *arguments: object) -> str:
            address = super().__call__(*arguments)
            tunnels.append(late)
            return address

    setup = LateSetup("http://late.gradio.live", wait_s=0.1)
    with pytest.raises(ShareFailed):
        open_tunnel(7861, timeout_s=0.02, setup=setup)
    deadline = time.monotonic() + 5
    while late.kills == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert late.kills == 1


def test_close_ends_the_tunnel_of_this_port_only(tunnels: list[FakeTunnel]) -> None:
    mine, other = FakeTunnel(7861), FakeTunnel(7999)
    tunnels += [mine, other]
    close_tunnel(7861)
    close_tunnel(7861)
    assert (mine.kills, other.kills) == (1, 0)


def test_a_tunnel_program_with_a_wrong_checksum_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradio import networking, tunneling
    from gradio.exceptions import ChecksumMismatchError

    def mismatched(*arguments: object) -> str:
        raise ChecksumMismatchError

    binary = tmp_path / "frpc"
    binary.write_bytes(b"not the tunnel program")
    monkeypatch.setattr(networking, "setup_tunnel", mismatched)
    monkeypatch.setattr(tunneling, "BINARY_PATH", str(binary))
    with pytest.raises(ShareFailed, match="not the one it should be"):
        open_tunnel(7861)
    assert not binary.exists()
