"""Driver states of a pipeline: what its driver keeps in Python goes with each epoch, as the rows and the state do."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.manifest import Manifest
from holdfast.repository.artifacts import load_artifacts
from holdfast.repository.pipeline import PipelineRecords
from holdfast.states import as_checkpointable

__all__ = ["DriverStates", "load_driver_states"]


class DriverStates:
    """The states that were registered with a pipeline, by name. Not for several threads."""

    def __init__(self, states: Mapping[str, object]) -> None:
        self._states = {name: as_checkpointable(state) for name, state in states.items()}
        self._first = self.save()

    def save(self) -> dict[str, bytes]:
        return {name: state.checkpoint() for name, state in self._states.items()}

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Put all back to what was saved; one that was not known then, to what it was when it was registered."""
        for name, state in self._states.items():
            state.restore(saved.get(name, self._first[name]))


def load_driver_states(records: PipelineRecords, manifest: Manifest) -> dict[str, bytes]:
    """The driver's states of a checkpoint. Raises DamagedArtifact for what is not as it was saved."""
    loaded = load_artifacts(records.store, records.keys, manifest.driver_states.values())
    found = {artifact.sha256: data for artifact, data in loaded}
    return {name: found[artifact.sha256] for name, artifact in manifest.driver_states.items()}
