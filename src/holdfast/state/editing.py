"""State changed as rows: read from a checkpoint, given to a function, and laid down as a directory that Spark starts
from. Batch, offsets, watermark and every other operator stay as they were."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.checkpoint import Checkpoint
from holdfast.errors import BadValue, StateNotKept
from holdfast.laying import Progress
from holdfast.spark.lay import Changes, Laid, Regrown, lay_down
from holdfast.spark.logs import parse_commit
from holdfast.state.comparing import count_unlike, same_shape
from holdfast.state.files import is_of_store, regrown_name, with_state_ids
from holdfast.state.folders import cut_of, keep_only, schemas_here
from holdfast.state.inventory import Part
from holdfast.state.reading import State, open_state, read_part, with_fields
from holdfast.state.rebuilding import Kept, rebuild, refuse_fixed
from holdfast.state.session import explained_by_spark, failed_in_spark, first_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Transform", "edit"]

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
COLLECTIONS = ("list_value", "map_value")


def edit(
    checkpoint: Checkpoint,
    transform: Transform,
    destination: str | Path,
    *,
    operator: int | None = None,
    part: str | None = None,
    spark: SparkSession | None = None,
    fork: bool = False,
    state_only: bool = False,
    progress: Progress | None = None,
) -> Laid:
    """Lay a checkpoint down in a new local folder with the state of one operator changed by `transform`.

    `transform` is given the rows as a DataFrame and returns those that are to be: `key` and `value`, of the same types,
    one row for each key. Of a transformWithState it is given the variable `part` ("@timers" are its timers); without
    one it is called for each in turn, which all have `key`. Lists and maps come whole, as `list_value` and `map_value`.
    Fields that Spark gives the same name are told apart in their order, as `sum` and `sum_2` for two sums.

    What comes out is read back and compared with what was to go in. It claims nothing: it is a restore, with its
    conditions, and `fork` gives it an id of its own. Raises StateFixed for an operator whose state can't be made again
    from rows, BadValue for rows that can't be its state; the repository is untouched and no destination is there then.
    """
    with open_state(checkpoint, spark, progress=progress) as state:
        number = _operator(state, operator, part)
        refuse_fixed(state.session, state.inventory, number)
        editing = _Editing(state, number, part, transform)
        return lay_down(
            checkpoint.pipeline.records,
            checkpoint.manifest,
            str(destination),
            Changes(fork),
            state_only=state_only,
            progress=progress,
            regrow=editing.regrow,
        )


def _operator(state: State, operator: int | None, part: str | None) -> int:
    """The operator that is meant; the part must be one of its own."""
    numbers = {each.operator for each in state.parts if operator in (None, each.operator)}
    if part is not None or len(numbers) != 1:
        return state.inventory.choose(operator, part).operator
    return numbers.pop()


class _Editing:
    def __init__(self, state: State, operator: int, part: str | None, transform: Transform) -> None:
        self._state = state
        self._inventory = state.inventory
        self._operator = operator
        self._part = part
        self._transform = transform

    def regrow(self, folder: Path, root: str) -> Regrown:
        """Change the rows, have Spark make state of them, put that in the place of what the folder holds, compare."""
        work = self._state.folder / "edit"
        parts = self._inventory.of_operator(self._operator)
        kept = [self._edited(part, work / f"rows-{number}") for number, part in enumerate(parts)]
        rebuild(self._state.session, self._inventory, self._operator, kept, work / "rebuilt")
        self._graft(work / "rebuilt", folder)
        cut = cut_of(folder, self._inventory.epoch, self._inventory.checkpoint)
        files, size = keep_only(folder, cut)
        with schemas_here(folder, root):
            said = [self._compared(each, folder) for each in kept]
        return Regrown(cut.epoch, files, size, tuple(said))

    def _edited(self, part: Part, folder: Path) -> Kept:
        """The rows of a part as they are to be, written down so that they stay the same from now on."""
        rows = self._state.rows(part.operator, part.name, whole=True).select("key", part.column)
        with _explained_by_transform(part):
            changed = rows
            if self._part in (None, part.name):
                changed = self._transform(rows)
                self._check_shape(part, rows, changed)
            rows = with_fields(rows)
            changed = changed.select(*rows.columns)
            if part.column in COLLECTIONS:
                # Spark keeps no empty ones.
                changed = changed.where(f"size({part.column}) > 0")
            kept = Kept(part, f"file:{folder}", rows.schema)
            changed.write.parquet(kept.files)
            self._check_unique(kept)
        return kept

    def _check_shape(self, part: Part, rows: DataFrame, changed: DataFrame) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(changed, DataFrame):
            raise BadValue(f"transform of {part}", f"it returns a {type(changed).__name__}, not a DataFrame")
        for field in rows.schema.fields:
            found = {other.name: other.dataType for other in changed.schema.fields}.get(field.name)
            if found is None or not same_shape(found, field.dataType):
                was = found.simpleString() if found else "not there"
                raise BadValue(f"transform of {part}", f"{field.name} is {was}, not {field.dataType.simpleString()}")

    def _check_unique(self, kept: Kept) -> None:
        keys = [name for name in kept.schema.names if name == "key"]
        rows = self._rows(kept).groupBy(*keys).count()
        twice = rows.where("count > 1").first() if kept.part.unique else None
        if twice is not None:
            key = f"the key {twice['key']}" if keys else "what has no key"
            raise BadValue(f"transform of {kept.part}", f"{key} has {twice['count']} rows")

    def _rows(self, kept: Kept) -> DataFrame:
        return self._state.session.read.schema(kept.schema).parquet(kept.files)

    def _graft(self, rebuilt: Path, folder: Path) -> None:
        """Take the files of the operator's stores away and put the new ones there, as the version that they were."""
        inventory = self._inventory
        for path in [*(folder / "state" / str(self._operator)).rglob("*")]:
            if path.is_file() and is_of_store(path.relative_to(folder).as_posix(), self._operator):
                path.unlink()
        for name in cut_of(rebuilt, 0, inventory.checkpoint).files:
            if is_of_store(name, 0):
                there = folder / regrown_name(name, self._operator, inventory.epoch + 1)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(rebuilt / name, there)
        ids = parse_commit((rebuilt / "commits/0").read_bytes()).state_ids
        commit = folder / f"commits/{inventory.epoch}"
        commit.write_bytes(with_state_ids(commit.read_bytes(), {self._operator: ids[0]} if ids else {}))

    def _compared(self, kept: Kept, folder: Path) -> str:
        """What was done to a part, in words. Raises StateNotKept if the folder does not hold the rows it is to hold."""
        name, rows = self._inventory.checkpoint, self._rows(kept)
        with explained_by_spark(name):
            unlike = count_unlike(rows, read_part(self._state.session, f"file:{folder}", kept.part, name, whole=True))
            count = rows.count()
        if unlike:
            raise StateNotKept(name, f"{kept.part}: {unlike} rows are not the same")
        by = f", by {_name_of(self._transform)}" if self._part in (None, kept.part.name) else ""
        return f"state of {kept.part} made again{by}: {count:,} rows, all compared"


@contextmanager
def _explained_by_transform(part: Part) -> Iterator[None]:
    """What Spark fails with becomes BadValue, at once or when the rows are written: a transform is lazy as Spark is."""
    try:
        yield
    except failed_in_spark() as error:
        raise BadValue(f"transform of {part}", f"its rows can't be had: {first_words(error)}") from error


def _name_of(transform: Transform) -> str:
    return str(getattr(transform, "__name__", type(transform).__name__))
