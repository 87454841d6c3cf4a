"""`holdfast restore`: a checkpoint as a directory that Spark starts from, or as plain files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, StoreOption, verb
from holdfast.cli.render import Cell, Styled
from holdfast.text import amount, size

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.restore import Restored
    from holdfast.spark.lay import Laid

__all__ = ["LAYING", "command", "laying", "show_laid"]

BETWEEN = re.compile(r"=(?=/|[A-Za-z][A-Za-z0-9+.-]*:/)")
"""The = before a path from the root or one with a scheme; names of folders may hold others."""


class MapPath(click.ParamType):  # type: ignore[type-arg]  # not generic at run time
    """OLD=NEW, both from the root or with their scheme."""

    name = "OLD=NEW"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        old, *new = BETWEEN.split(str(value), maxsplit=1)
        if not old or not new:
            self.fail("write OLD=NEW, such as /data/in=s3a://bucket/in", param, ctx)
        return old, new[0]


LAYING = (
    click.Option(
        ["--dest-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of DEST's store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    click.Option(
        ["--map-path"],
        type=MapPath(),
        multiple=True,
        help="Files that the query read or wrote below OLD are below NEW now: the logs name them there. Repeatable.",
    ),
    click.Option(
        ["--set-offset"],
        multiple=True,
        metavar="SOURCE:TOPIC:PARTITION=N",
        help="Have a Kafka partition go on at N, with the state as it is: skips a poison record. Repeatable.",
    ),
    click.Option(
        ["--file-sink"],
        metavar="URL",
        help="The path of the query's file sink: a copy of its log, cut back to the checkpoint, goes to DEST-sink-log.",
    ),
    click.Option(
        ["--sink-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of the file sink's store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    click.Option(
        ["--spark"],
        metavar="VERSION",
        help="The Spark that is to start from DEST.  [default: the pyspark that is installed here]",
    ),
    click.Option(["--state-only"], is_flag=True, help="Leave the sinks of the pipeline where they are."),
)
"""What can be said about a directory that is laid down, in a restore as in a fork."""


@verb(
    "restore",
    click.Argument(["reference"], metavar="REF"),
    click.Argument(["destination"], metavar="[DEST]", required=False),
    *LAYING,
    click.Option(
        ["--apply-sink"],
        is_flag=True,
        help="Put the log that was cut back in the place of the sink's own, which is kept beside it.",
    ),
    click.Option(
        ["--heal"], metavar="DIR", help="Bring back only what is missing or damaged in DIR, and nothing else."
    ),
    click.Option(["--dry-run"], is_flag=True, help="With --heal: show what would be brought back."),
    click.Option(
        ["--stopped"], is_flag=True, help="With --heal: the query has stopped, DIR need not be watched first."
    ),
    examples="""
    holdfast restore orders /data/checkpoints/orders-2
    holdfast restore orders@before-upgrade s3a://bucket/checkpoints/orders-2
    holdfast restore orders@time:2026-11-15T10:00 ./orders --map-path /data/in=s3a://bucket/in
    holdfast restore orders@epoch:41 ./orders --set-offset 0:orders:3=1043
    holdfast restore orders@epoch:41 ./orders --file-sink s3a://bucket/table --apply-sink
    holdfast restore orders --heal /data/checkpoints/orders --dry-run
    """,
)
def command(
    session: Session,
    reference: str,
    destination: str | None,
    apply_sink: bool,
    heal: str | None,
    dry_run: bool,
    stopped: bool,
    **said: Any,
) -> None:
    """Lay a checkpoint down in DEST, a new or empty place: every byte verified, whole or not at all.

    REF is PIPELINE (its newest), PIPELINE@SAVEPOINT, PIPELINE@ID-PREFIX, PIPELINE@epoch:N, PIPELINE@slot:G-N or
    PIPELINE@time:2026-11-15T10:00, the newest at or before that time.

    A checkpoint of a Spark query becomes a directory that Spark starts from, on the local disk or in an object store;
    the line of PySpark that does so is printed. The query keeps its id: run only one of the two. The repository and the
    old directory are not touched. A restore that was killed leaves nothing that Spark would start from; run it again as
    it was.

    A checkpoint of a Python loop becomes plain files in a local folder: driver/NAME, operators/NAME/PARTITION/ with the
    snapshot and the deltas after it, files/, manifest.json, and in decoded/ each state and the record, taken apart.

    With --heal DIR no new place is made: the files that the last batch in DIR needs and that are missing or damaged
    there come back from what was captured of it. DIR never goes back to an older batch, and what was replaced is kept
    in DIR/_holdfast/damaged. The query must not be running.
    """
    if (heal is None) == (destination is None):
        raise click.UsageError("Give DEST, a new place, or --heal DIR.")
    if heal is not None:
        _heal(session, reference, heal, said, dry_run=dry_run, stopped=stopped)
        return
    if dry_run or stopped:
        raise click.UsageError("--dry-run and --stopped go with --heal.")
    if apply_sink and not said["file_sink"]:
        raise click.UsageError("--apply-sink goes with --file-sink URL.")
    checkpoint = session.repository().find(reference)
    with session.output.progress("restore") as progress:
        restored = checkpoint.restore(destination or "", progress, apply_sink=apply_sink, **laying(session, said))
    from holdfast.restore import Restored

    if not isinstance(restored, Restored):
        show_laid(session, "Restored", checkpoint, restored)
    elif session.as_json:
        session.document({**restored._asdict(), "slot": checkpoint.slot, "checkpoint_id": checkpoint.id})
    else:
        _summary(session, "Restored", checkpoint, restored)


def _heal(
    session: Session, reference: str, directory: str, said: Mapping[str, Any], *, dry_run: bool, stopped: bool
) -> None:
    from holdfast.report.plain import plain
    from holdfast.spark.heal import plan_heal
    from holdfast.spark.places import SparkPlace

    other = [name for name in ("map_path", "set_offset", "file_sink", "sink_option", "spark") if said[name]]
    if other:
        raise click.UsageError(f"--{other[0].replace('_', '-')} is for a new place: it does not go with --heal.")
    repository = session.repository()
    pipeline = repository.pipeline(reference.partition("@")[0])
    pipeline.require()
    manifest = repository.find(reference).manifest if "@" in reference else None
    place = SparkPlace(directory, dict(said["dest_option"]), session.retry())
    with session.output.progress("heal") as progress:
        plan = plan_heal(pipeline.records, place, manifest, progress)
        healed = None if dry_run and not plan.refused else plan.apply(stopped=stopped, progress=progress)
    if session.as_json:
        session.document({"plan": plain(plan), "healed": plain(healed) if healed else None})
        return
    for file in plan.files:
        session.output.line(f"{file.why:<14}{file.name}")
    if plan.nothing_to_do:
        session.output.remark(f"Nothing to heal: batch {plan.epoch} in {plan.directory} is whole and as captured.")
    elif healed is None:
        session.output.remark(f"{amount(len(plan.files), 'file')} would come back from {plan.checkpoint}.")
    else:
        kept = f"; what was there is in {healed.aside}" if healed.aside else ""
        session.output.remark(
            f"Healed {plan.directory} at batch {plan.epoch}: {amount(healed.files, 'file')}, {size(healed.bytes)}, "
            f"from {plan.checkpoint}{kept}."
        )


def laying(session: Session, said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said on the command line, as `Checkpoint.restore` and `fork` take it."""
    if len({old for old, _ in said["map_path"]}) < len(said["map_path"]):
        raise click.UsageError("--map-path: the same OLD is given twice.")
    return {
        "options": dict(said["dest_option"]),
        "map_paths": dict(said["map_path"]),
        "set_offsets": said["set_offset"],
        "file_sink": said["file_sink"],
        "sink_options": dict(said["sink_option"]),
        "spark": said["spark"],
        "state_only": said["state_only"],
        "retry": session.retry(),
    }


def show_laid(session: Session, done: str, checkpoint: Checkpoint, laid: Laid) -> None:
    """Tell of a directory for Spark: what it is, how to start from it, and what its sinks need."""
    if session.as_json:
        told = {"start": laid.start, "remarks": laid.remarks, "slot": checkpoint.slot, "checkpoint_id": checkpoint.id}
        session.document({**asdict(laid), **told})
        return
    output = session.output
    _summary(session, done, checkpoint, laid)
    facts: list[tuple[str, Cell]] = [("query id", f"{laid.query_id} (new)" if laid.fork else laid.query_id)]
    facts += [("changed", Styled(edit, "yellow")) for edit in laid.edits]
    facts += [("sink log", laid.sink_log)] if laid.sink_log else []
    facts += [("old sink log", laid.sink_kept)] if laid.sink_kept else []
    output.facts([*facts, ("start from it", Styled(laid.start, "bold"))])
    for remark in laid.remarks:
        output.line(remark)


def _summary(session: Session, done: str, checkpoint: Checkpoint, laid: Restored | Laid) -> None:
    session.output.remark(
        f"{done} {checkpoint.pipeline.name}@slot:{checkpoint.slot} (epoch {checkpoint.epoch}) to {laid.destination}: "
        f"{amount(laid.files, 'file')}, {size(laid.bytes)}, all verified."
    )
