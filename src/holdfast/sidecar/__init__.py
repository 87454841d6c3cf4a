"""One sidecar for a whole cluster: all that a holdfast.toml asks for, from captures to alerts."""

from __future__ import annotations

from holdfast.sidecar.sidecar import Sidecar

__all__ = ["Sidecar"]
