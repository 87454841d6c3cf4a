"""One sidecar for a whole cluster: captures, retention, checks and alerts of everything that holdfast.toml names."""

from __future__ import annotations

from holdfast.sidecar.sidecar import Sidecar

__all__ = ["Sidecar"]
