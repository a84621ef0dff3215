"""Which Host and Origin headers are ours: the guard against DNS rebinding and forged requests."""

import ipaddress
import re
from typing import Final

# Nothing but a name or address and a port: no user part, no path to hide another name behind.
_AUTHORITY: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<authority>.+)")
_DEFAULT_PORT: Final = {"http": 80, "https": 443}


def host_name(host: str) -> str | None:
    """The name in a Host header, lower case, without port and brackets; None when malformed."""
    match = _AUTHORITY.fullmatch(host.strip().lower())
    return match["name"].strip("[]").rstrip(".") or None if match else None


def origin_name(origin: str) -> str | None:
    """The host name of an http(s) Origin header; None for `null` and everything else."""
    match = _ORIGIN.fullmatch(origin.strip().lower())
    return host_name(match["authority"]) if match else None


def is_same_host(origin: str, host: str) -> bool:
    """Whether an Origin is the site that Host names: same name, same port.

    A port that is missing is the default of the origin's scheme: behind a proxy that ends TLS
    the studio sees http while the browser says https.
    """
    match = _ORIGIN.fullmatch(origin.strip().lower())
    if match is None or origin_name(origin) is None:
        return False
    default = _DEFAULT_PORT[match["scheme"]]
    return (origin_name(origin), _port(match["authority"], default)) == (
        host_name(host),
        _port(host, default),
    )


def is_loopback(name: str) -> bool:
    """Whether a host name can mean this machine only."""
    return name == "localhost" or name.endswith(".localhost") or _is_loopback_ip(name)


def is_ip(name: str) -> bool:
    """Whether a host name is an IP address, which no foreign DNS answer can stand behind."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback_ip(name: str) -> bool:
    return is_ip(name) and ipaddress.ip_address(name).is_loopback


def _port(authority: str, default: int) -> int:
    match = _AUTHORITY.fullmatch(authority.strip().lower())
    return int(match["port"]) if match and match["port"] else default
