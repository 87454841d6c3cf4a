"""`holdfast capture`: one consistent cut of a Spark checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, StoreOption, verb
from holdfast.text import amount, size

if TYPE_CHECKING:
    from holdfast.capturing import Capture

__all__ = ["CAPTURING", "command"]

CAPTURING = (
    click.Option(
        ["--new-timeline"],
        is_flag=True,
        help="If DIR is not where the pipeline goes on (another query, or rewound), begin anew from it.",
    ),
    click.Option(
        ["--dir-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of DIR's store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    click.Option(
        ["--file-sink"],
        metavar="URL",
        help="The path of the query's file sink: its log is kept along, so that a restore can cut it back.",
    ),
    click.Option(
        ["--sink-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of the file sink's store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
)


@verb(
    "capture",
    click.Argument(["directory"], metavar="DIR"),
    click.Option(["--pipeline", "-p"], required=True, metavar="NAME", help="The pipeline that the query is."),
    click.Option(["--savepoint"], metavar="NAME", help="Give the checkpoint this name."),
    click.Option(["--stopped"], is_flag=True, help="The query has stopped: take its last committed batch."),
    click.Option(
        ["--quiet", "quiet_for"],
        metavar="DURATION",
        help="Wait until nothing in DIR has changed for so long (90s), then take the last committed batch.",
    ),
    *CAPTURING,
    examples="""
    holdfast capture /data/checkpoints/orders -p orders
    holdfast capture s3a://bucket/checkpoints/orders -p orders --savepoint before-upgrade
    holdfast capture /data/checkpoints/orders -p orders --stopped
    holdfast capture /data/checkpoints/orders -p orders --quiet 90s
    """,
)
def command(
    session: Session,
    directory: str,
    pipeline: str,
    savepoint: str | None,
    stopped: bool,
    quiet_for: str | None,
    new_timeline: bool,
    dir_option: tuple[tuple[str, str], ...],
    file_sink: str | None,
    sink_option: tuple[tuple[str, str], ...],
) -> None:
    """Take a checkpoint of the Spark query whose checkpointLocation is DIR, from its files alone.

    The query may be running: it is neither asked nor slowed down. Taken is the newest batch that another has followed.
    The very last one counts only once nothing can change it: say that the query has stopped, or let --quiet find out.
    Only files that the last checkpoint does not hold are read. If a checkpoint holds the batch already, that one is
    named; nothing to capture at all is 4, a directory of another query 6.
    """
    if stopped and quiet_for is not None:
        raise click.UsageError("Give --stopped or --quiet: what has stopped need not be waited for.")
    from holdfast.capturing import capture_once

    repository = session.repository()
    with session.output.progress("capture", in_bytes=False) as progress:
        captured = capture_once(
            directory,
            repository,
            pipeline=pipeline,
            savepoint=savepoint,
            stopped=stopped,
            quiet=quiet_for,
            new_timeline=new_timeline,
            options=dict(dir_option),
            file_sink=file_sink,
            sink_options=dict(sink_option),
            retry=session.retry(),
            progress=progress,
        )
    if session.as_json:
        session.document(_document(captured, savepoint))
    else:
        _show(session, captured, savepoint)


def _document(captured: Capture, savepoint: str | None) -> dict[str, Any]:
    checkpoint = captured.checkpoint
    return {
        "pipeline": checkpoint.pipeline.name,
        "slot": checkpoint.slot,
        "checkpoint_id": checkpoint.id,
        "epoch": checkpoint.epoch,
        "new": captured.is_new,
        "savepoint": savepoint,
        "files": captured.files,
        "files_read": captured.files_read,
        "bytes_read": captured.bytes_read,
        "bytes_new": checkpoint.head.bytes_new if captured.is_new else 0,
        "bytes_shared": checkpoint.head.bytes_shared,
        "milliseconds": round(captured.milliseconds, 1),
        "left_out": captured.left_out,
        "broken": captured.broken,
    }


def _show(session: Session, captured: Capture, savepoint: str | None) -> None:
    checkpoint, remark = captured.checkpoint, session.output.remark
    name = f"{checkpoint.pipeline.name}@slot:{checkpoint.slot}"
    if captured.is_new:
        remark(
            f"Captured epoch {checkpoint.epoch} as {name} ({checkpoint.id}): {amount(captured.files, 'file')}, "
            f"{captured.files_read:,} of them read ({size(captured.bytes_read)}), "
            f"{size(checkpoint.head.bytes_shared)} shared, in {captured.milliseconds:.0f} ms."
        )
    else:
        remark(f"Nothing new: {name} ({checkpoint.id}) already holds epoch {checkpoint.epoch}, the newest whole batch.")
    if savepoint is not None:
        remark(f"It is the savepoint {checkpoint.pipeline.name}@{savepoint}.")
    for why in captured.broken:
        remark(f"A newer batch can't be restored, and was left out: {why}")
    if captured.left_out is not None and not captured.broken:
        remark(
            f"Batch {captured.left_out} is committed too, but nothing says that the query has stopped: "
            "take it with --stopped, or with --quiet 90s."
        )
