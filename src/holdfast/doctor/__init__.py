"""What is on this machine and in a store, what is missing and what does not fit, each with what to do about it."""

from __future__ import annotations

from holdfast.doctor.config import examine_config
from holdfast.doctor.machine import examine_machine
from holdfast.doctor.places import examine_directory, examine_disk
from holdfast.doctor.repository import examine_repository
from holdfast.doctor.result import Result

__all__ = [
    "Result",
    "examine_config",
    "examine_directory",
    "examine_disk",
    "examine_machine",
    "examine_repository",
]
