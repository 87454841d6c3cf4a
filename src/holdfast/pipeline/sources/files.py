"""Files that a query reads: whether those that it would read again are still there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from holdfast.decide.replayable import SourceFinding, Until, judge_files, unknown
from holdfast.pipeline.sources.contract import LogEntry, Past, Source
from holdfast.pipeline.sources.relations import Jvm

__all__ = ["FileSource", "read_log"]


class FileSource(Source):
    """A folder of files. They stay for as long as nobody takes them away."""

    def __init__(self, name: str, options: Mapping[str, str], jvm: Jvm) -> None:
        super().__init__(name)
        self._jvm = jvm
        self._clean = {key.lower(): value for key, value in options.items()}.get("cleansource")

    def judge(self, past: Past) -> list[SourceFinding]:
        needed = sorted({entry.path for entry in past.files})
        try:
            gone = self._jvm.missing(needed)
        except Py4JError as error:
            return [unknown(self.name, str(error).splitlines()[0])]
        return judge_files(self.name, len(needed), gone, self._clean)

    def until(self, past: Past) -> Until:  # noqa: ARG002 - it is the same from everywhere
        if self._clean and self._clean.lower() != "off":
            return Until(why=f"cleanSource is {self._clean}")
        return Until()


def read_log(data: bytes) -> Iterable[LogEntry]:
    """The files that an entry of a file source's log names, a joined one too: a version, then one object a line."""
    for line in data.decode().splitlines()[1:]:
        if line.strip():
            entry = json.loads(line)
            yield LogEntry(int(entry["batchId"]), str(entry["path"]))
