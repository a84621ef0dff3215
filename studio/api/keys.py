"""API keys: which one a request shows, the session token made from it, and a limit on guessing."""

import hashlib
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SESSION_S: Final = 30 * 24 * 3600
FAILURES: Final = 20
WINDOW_S: Final = 60.0
_CLIENTS: Final = 1024


class ApiKeys:
    """The keys that open the studio. Each key is an owner: `key-` and 12 digits of its SHA-256.

    A session token is `<owner>.<expiry>.<HMAC-SHA256>`, signed with a key derived from the API
    key. So it holds no key, outlives a restart, and dies with the API key or after 30 days.
    """

    def __init__(self, keys: tuple[str, ...], clock: Callable[[], float] = time.time) -> None:
        self._keys = tuple(_Key.of(key) for key in keys)
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._keys)

    def owner_of_key(self, presented: str) -> str | None:
        """The owner whose key this is. Compares with every key, each time in full."""
        digest = _sha256(presented)
        owner = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                owner = key.owner
        return owner

    def session_token(self, owner: str) -> str:
        """What the cookie of a signed-in browser holds."""
        key = next(key for key in self._keys if key.owner == owner)
        expiry = int(self._clock()) + SESSION_S
        return f"{owner}.{expiry}.{key.signature(f'{owner}.{expiry}')}"

    def owner_of_session(self, token: str) -> str | None:
        """The owner of a token that is genuine and not expired."""
        claim, _, signature = token.rpartition(".")
        owner, _, expiry = claim.partition(".")
        key = next((key for key in self._keys if key.owner == owner), None)
        if key is None or not token.isascii():
            return None
        if not hmac.compare_digest(key.signature(claim), signature):
            return None
        return owner if expiry.isdecimal() and int(expiry) > self._clock() else None


class FailureLimit:
    """At most 20 wrong keys a minute from one client; then every try waits, the right one too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, client: str) -> int:
        """Seconds until this client may try a key again; 0 means now."""
        times = self._failures.get(client)
        if times is None or len(times) < FAILURES:
            return 0
        return max(0, int(times[0] + WINDOW_S - self._clock() + 0.999))

    def record(self, client: str) -> None:
        """Note a wrong key."""
        times = self._failures.setdefault(client, deque(maxlen=FAILURES))
        times.append(self._clock())
        self._failures.move_to_end(client)
        if len(self._failures) > _CLIENTS:
            self._failures.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Key:
    owner: str
    digest: bytes
    signing: bytes

    @staticmethod
    def of(key: str) -> "_Key":
        digest = _sha256(key)
        return _Key(f"key-{digest.hex()[:12]}", digest, _sha256("studio session\0" + key))

    def signature(self, claim: str) -> str:
        return hmac.new(self.signing, claim.encode(), hashlib.sha256).hexdigest()


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
