"""`holdfast show`: everything about one checkpoint, or the claims on a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.text import amount, duration, size

if TYPE_CHECKING:
    from holdfast.report import CheckpointDetails, GenerationRow
    from holdfast.report.details import DriverState, OperatorView, SourceView
    from holdfast.spark.explain import OperatorExplained, SparkExplained

__all__ = ["command"]

SINK_STYLES = {"committed": "green", "pending": "yellow", "failed": "bold red"}
MOST_PARTITIONS = 32
"""Beyond this the partitions of an operator, or of a topic, are only summed up."""


@verb(
    "show",
    click.Argument(["reference"], metavar="REF"),
    click.Option(["--generations"], is_flag=True, help="Show the claims on the pipeline instead."),
    examples="""
    holdfast show orders
    holdfast show orders@before-upgrade
    holdfast show orders@epoch:42 --json
    holdfast show orders --generations
    """,
)
def command(session: Session, reference: str, generations: bool) -> None:
    """Show everything about one checkpoint: ids, sources and offsets, watermark, operators, driver states, sinks.

    Sinks are shown as they stand now. Driver states that a Python loop saved are decoded and shown in short. Of a
    checkpoint captured from Spark: the offsets of each source, Kafka's by topic and partition, each stateful operator
    with its stores, snapshots and deltas, how its state is stored, and the settings that Spark keeps on a restart.
    With --generations: who claimed the pipeline, when, what for, and where each generation began.
    """
    repository = session.repository()
    if generations:
        from holdfast.report import list_generations

        if "@" in reference:
            raise click.UsageError("--generations takes the name of a pipeline.")
        rows = list_generations(repository.pipeline(reference))
        if session.as_json:
            session.document({"pipeline": reference, "generations": rows})
        else:
            _show_generations(session, rows)
        return
    from holdfast.report import describe

    details = describe(repository.find(reference))
    if session.as_json:
        session.document(details)
    else:
        _show(session, details)


def _show_generations(session: Session, rows: list[GenerationRow]) -> None:
    columns = [Column("generation", right=True), Column("began"), Column("why"), Column("when"), Column("who")]
    columns += [Column("query"), Column("directory", wraps=True)] if any(row.query_id for row in rows) else []
    table: list[list[Cell]] = []
    for row in rows:
        began = row.began if row.adopted_epoch is None else f"{row.began}, epoch {row.adopted_epoch}"
        number: Cell = Styled(f"{row.generation} *", "bold") if row.is_current else f"{row.generation}  "
        cells: list[Cell] = [number, began, row.why, session.time(row.timestamp_ms), row.who]
        table.append([*cells, row.query_id or "-", row.directory or "-"][: len(columns)])
    session.output.table(columns, table)
    session.output.remark("* the generation that counts now")


def _show(session: Session, it: CheckpointDetails) -> None:
    if it.spark is not None:
        _show_spark(session, it, it.spark)
    else:
        _show_loop(session, it)
    _show_sinks(session, it)
    _show_fingerprint(session, it)


def _show_spark(session: Session, it: CheckpointDetails, spark: SparkExplained) -> None:
    output = session.output
    facts = [fact for fact in _facts(session, it) if fact[0] != "artifacts"]
    facts += [
        ("query", spark.query_id),
        ("directory", spark.directory),
        ("files", spark.files_in_words),
        ("state", spark.state_in_words),
    ]
    facts += [("restored", f"its directory was restored from {spark.restored_from}")] if spark.restored_from else []
    facts += [(name.replace("_", " "), value) for name, value in spark.remarks.items()]
    output.facts(facts)
    _show_spark_sources(session, spark)
    for operator in spark.operators:
        _show_spark_operator(session, operator)
    if spark.settings:
        output.heading(f"Settings that a restart keeps (from offsets/{it.epoch})")
        for name, value in spark.settings.items():
            output.line(f"  {name} = {value}")


def _show_spark_sources(session: Session, spark: SparkExplained) -> None:
    output = session.output
    kafka = [source for source in spark.sources if source.positions]
    if kafka:
        output.heading("Kafka sources")
        columns = [Column("source"), Column("topic"), Column("partition", right=True), Column("offset", right=True)]
        rows: list[list[Cell]] = []
        for source in kafka:
            for topic in sorted({position.topic for position in source.positions}):
                at = [position for position in source.positions if position.topic == topic]
                if len(at) > 1:
                    total = sum(position.offset for position in at)
                    rows.append([source.name, Styled(topic, "bold"), f"all {len(at)}", f"{total:,}"])
                if len(at) <= MOST_PARTITIONS:
                    rows += [[source.name, topic, str(p.partition), f"{p.offset:,}"] for p in at]
        output.table(columns, rows, indent="  ")
        if any(len(source.positions) > MOST_PARTITIONS for source in kafka):
            output.remark(f"  More than {MOST_PARTITIONS} partitions are summed up; --json has each.")
    others = [source for source in spark.sources if not source.positions]
    if others:
        output.heading("Other sources" if kafka else "Sources")
        columns = [Column("source"), Column("kind"), Column("position"), Column("offset", wraps=True)]
        rows = []
        for source in others:
            rows += [[source.name, source.kind, place, offset] for place, offset in source.offsets.items()]
            rows += [] if source.offsets else [[source.name, source.kind, "-", "-"]]
        output.table(columns, rows, indent="  ")


def _show_spark_operator(session: Session, operator: OperatorExplained) -> None:
    output = session.output
    name = operator.name or "its name is not known"
    kind = f" ({operator.kind})" if operator.kind else ""
    output.heading(f"Operator {operator.number}: {name}{kind}, {amount(operator.partitions, 'partition')}")
    if operator.partitions > 1:
        largest, bytes_of_it = max(operator.sizes.items(), key=lambda item: item[1])
        output.line(f"  {size(operator.bytes)}; the largest partition is {largest} with {size(bytes_of_it)}")
    if operator.problem:
        output.line(Styled(f"  damaged: {operator.problem}", "bold red"))
    columns = [
        Column("store"),
        Column("version", right=True),
        Column("snapshots", right=True),
        Column("deltas", right=True),
        Column("tables", right=True),
        Column("bytes", right=True),
    ]
    rows: list[list[Cell]] = [
        [it.store, *map(str, [it.version, it.snapshots, it.deltas, it.tables]), size(it.bytes)]
        for it in operator.summaries
    ]
    output.table(columns, rows, indent="  ")


def _facts(session: Session, it: CheckpointDetails) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [
        ("checkpoint", Styled(f"{it.pipeline}@slot:{it.slot}", "bold")),
        ("id", it.checkpoint_id),
        ("pipeline id", it.pipeline_id),
        ("timeline", "on it" if it.on_timeline else Styled("off it: abandoned", "yellow")),
        ("epoch", f"{it.epoch} (a restart goes on with batch {it.epoch + 1})" if it.spark else str(it.epoch)),
        ("time", session.time(it.timestamp_ms)),
        ("parent", it.parent or "none"),
        ("bytes", f"{size(it.bytes_new)} new, {size(it.bytes_shared)} shared"),
        ("artifacts", f"{it.artifacts} in {amount(it.objects, 'object')}"),
        ("watermark", _watermark(session, it.watermark)),
        ("engine", _engine(it)),
        ("savepoints", Styled(", ".join(it.savepoints) or "none", "green" if it.savepoints else "")),
    ]
    facts += [("took", duration(it.took_ms))] if it.took_ms else []
    facts += [("pin", Styled(f"{pin.why} ({pin.who}, {session.time(pin.timestamp_ms)})", "green")) for pin in it.pins]
    return facts


def _engine(it: CheckpointDetails) -> str:
    return f"{it.engine} {it.spark_version or '(its version is not known)'}" if it.spark else it.engine


def _show_loop(session: Session, it: CheckpointDetails) -> None:
    output = session.output
    facts = _facts(session, it)
    facts.append(("records", f"{it.processed_records:,} processed, {it.steps:,} steps"))
    facts += [(f"metadata {name}", value) for name, value in it.metadata.items()]
    output.facts(facts)
    _show_sources(session, "Sources", it.sources)
    _show_sources(session, "Tables", it.tables)
    _show_operators(session, it.operators)
    _show_driver_states(session, it.driver_states)
    if it.files:
        output.heading("Files")
        output.table(
            [Column("file"), Column("bytes", right=True)],
            [(name, size(count)) for name, count in it.files.items()],
            indent="  ",
        )


def _show_sinks(session: Session, it: CheckpointDetails) -> None:
    output = session.output
    if it.sinks:
        output.heading("Sinks")
        output.table(
            [Column("sink"), Column("status"), Column("epoch", right=True), Column("position", wraps=True)],
            [
                (
                    sink.name,
                    Styled(f"{sink.status}: {sink.why}" if sink.why else sink.status, SINK_STYLES.get(sink.status, "")),
                    "-" if sink.epoch is None else str(sink.epoch),
                    _value(sink.position),
                )
                for sink in it.sinks
            ],
            indent="  ",
        )


def _show_fingerprint(session: Session, it: CheckpointDetails) -> None:
    output = session.output
    if it.pipeline_hash:
        output.heading("Fingerprint")
        output.facts([("whole", it.pipeline_hash), *it.fingerprint.items()], indent="  ")
    if it.findings:
        output.heading("Findings")
        for finding in it.findings:
            style = "bold red" if finding.severity == "error" else "yellow"
            output.line(Styled(f"  {finding.severity}: {finding.where}: {finding.message}", style))


def _show_sources(session: Session, heading: str, sources: list[SourceView]) -> None:
    if not sources:
        return
    session.output.heading(heading)
    columns = [Column("name"), Column("position"), Column("offset", right=True, wraps=True)]
    rows: list[list[Cell]] = []
    for source in sources:
        rows += [[source.name, name, offset] for name, offset in source.offsets.items()]
        rows += [[source.name, f"({name})", value] for name, value in source.metadata.items()]
        if source.watermark is not None:
            rows.append([source.name, "(watermark)", _watermark(session, source.watermark)])
        if not source.offsets:
            rows.append([source.name, "-", "no offsets"])
    session.output.table(columns, rows, indent="  ")


def _show_operators(session: Session, operators: list[OperatorView]) -> None:
    if not operators:
        return
    session.output.heading("Operators")
    columns = [
        Column("operator"),
        Column("partition", right=True),
        Column("snapshots", right=True),
        Column("deltas", right=True),
        Column("bytes", right=True),
    ]
    rows: list[list[Cell]] = []
    for operator in operators:
        total = [f"all {len(operator.partitions)}", str(operator.snapshots), str(operator.deltas), size(operator.bytes)]
        rows.append([Styled(operator.name, "bold"), *total])
        if len(operator.partitions) <= MOST_PARTITIONS:
            rows += [
                [operator.name, str(p.partition), str(p.snapshots), str(p.deltas), size(p.bytes)]
                for p in operator.partitions
            ]
    session.output.table(columns, rows, indent="  ")
    if any(len(operator.partitions) > MOST_PARTITIONS for operator in operators):
        session.output.remark(f"  More than {MOST_PARTITIONS} partitions are summed up; --json has each.")


def _show_driver_states(session: Session, states: list[DriverState]) -> None:
    if not states:
        return
    output = session.output
    output.heading("Driver states")
    for state in states:
        shown: Cell = state.value or ""
        if state.problem:
            shown = Styled(f"damaged: {state.problem}", "bold red")
        output.facts([(f"{state.name}  {size(state.bytes)}", shown)], indent="  ")
        record = state.record
        if record is None:
            continue
        facts: list[tuple[str, Cell]] = [
            ("stream", record.stream),
            ("sequence", f"{record.sequence} (the last one in it)"),
            ("events", f"{record.event_count:,}"),
            ("created", session.time(record.created_ns // 1_000_000)),
            ("watermark", "none" if record.watermark_ns is None else session.time(record.watermark_ns // 1_000_000)),
        ]
        facts += [(f"offset {source}", _value(offsets)) for source, offsets in record.source_offsets.items()]
        facts += [(f"metadata {name}", value) for name, value in record.metadata.items()]
        output.facts(facts, indent="    ")
        if record.states:
            output.table(
                [Column("state"), Column("bytes", right=True), Column("value", wraps=True)],
                [(value.name, size(value.bytes), value.value or "(binary)") for value in record.states],
                indent="    ",
            )


def _watermark(session: Session, watermark: int | None) -> str:
    return "none" if watermark is None else f"{watermark} ({session.time(watermark)})"


def _value(value: Any) -> str:
    from holdfast.report import plain

    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_value(inner)}" for name, inner in value.items())
    return str(plain(value))
