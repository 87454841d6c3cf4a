"""What a file asks for and can't have, in words."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.config import Config

__all__ = ["not_available"]


def not_available(config: Config) -> Iterator[str]:
    """What the file asks for, or seems to, and can't have."""
    alerts = config.alerts
    asked = [name for name, on in (("retention", alerts.retention), ("way-back", alerts.way_back)) if on]
    without = [name for name, table in config.pipelines.items() if table.code is None]
    without += [f"all of {name}" for name in config.roots]
    if asked and without:
        yield f"{' and '.join(asked)} of {', '.join(without)}: only `code` can ask their sinks and sources"
    if alerts.damage and config.check is None:
        yield "damage beyond what a look at the newest checkpoint runs into: give a [check]"
    if config.drill is not None and config.drill.start and without:
        yield f"a start of Spark in drills of {', '.join(without)}: they have no `code`"
    if not alerts.to:
        yield "alerts by webhook or command: there is no [alerts.to.NAME]"
    if not (config.pipelines or config.roots):
        yield "anything at all: there are neither [pipelines.NAME] nor [roots.NAME]"
