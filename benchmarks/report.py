"""The last line of every benchmark."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure that the docs or an issue state; `value` must not pass `bar`."""

    name: str
    value: float
    bar: float

    @property
    def holds(self) -> bool:
        return self.value <= self.bar


def machine() -> str:
    """The processor's name and count."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def json_line(benchmark: str, claims: Sequence[Claim], rows: Sequence[dict[str, Any]]) -> str:
    """`{"benchmark", "machine", "claims", "rows"}` on one line."""
    stated = [asdict(claim) | {"holds": claim.holds} for claim in claims]
    values = {"benchmark": benchmark, "machine": machine(), "claims": stated, "rows": list(rows)}
    return json.dumps(values)
