"""Values and state records as deterministic, verified bytes. No I/O, and no library is imported before it is needed."""

from __future__ import annotations

from holdfast.codec.state import CheckpointState, decode_state, encode_state
from holdfast.codec.values import decode_value, encode_value
from holdfast.codec.wire import Buffer

__all__ = ["Buffer", "CheckpointState", "decode_state", "decode_value", "encode_state", "encode_value"]
