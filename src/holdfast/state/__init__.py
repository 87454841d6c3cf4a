"""State in the hand: the rows of a checkpoint's operators, read, compared, exported, rescaled and edited through Spark.

Everything works on a verified copy that is gone afterwards; nothing here claims a pipeline or writes to a repository.
"""

from __future__ import annotations

from holdfast.state.comparing import Changed, changed_rows
from holdfast.state.editing import Transform, edit
from holdfast.state.exporting import Exported, export
from holdfast.state.inventory import Inventory, Part, take_inventory
from holdfast.state.reading import State, documents, open_state
from holdfast.state.rescaling import rescale
from holdfast.state.session import some_session

__all__ = [
    "Changed",
    "Exported",
    "Inventory",
    "Part",
    "State",
    "Transform",
    "changed_rows",
    "documents",
    "edit",
    "export",
    "open_state",
    "rescale",
    "some_session",
    "take_inventory",
]
