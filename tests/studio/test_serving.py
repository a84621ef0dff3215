"""The socket and the data folder are claimed before anything slow happens."""

from pathlib import Path

import pytest

from studio.errors import CannotStart
from studio.serving import address, bind, lock_folder


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"{port}.*--port"):
            bind("127.0.0.1", port)


def test_port_0_takes_a_free_one_and_says_which() -> None:
    with bind("127.0.0.1", 0) as sock:
        assert address(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_two_studios_do_not_share_a_folder(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path)
    with pytest.raises(CannotStart, match="--data-dir"):
        lock_folder(tmp_path)
    lock.release()
    lock_folder(tmp_path).release()
