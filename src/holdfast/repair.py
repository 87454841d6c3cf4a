"""Repair: rebuild what follows from other records, set aside what can't be read, and touch nothing else."""

from __future__ import annotations

from holdfast.acknowledge import acknowledge_losses, set_joined_aside
from holdfast.check import Checked, Fault, verify_integrity
from holdfast.decide.timeline import newest, timeline
from holdfast.errors import Damage, ObjectMissing
from holdfast.gc import needs
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.records import Decision, Intent
from holdfast.repository.packs import Member, encode_index
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["repair"]


def repair(records: PipelineRecords, report: Checked) -> Checked:
    """Mend what a check found and note it in the report: hint and pack indexes are rebuilt, and checkpoints that can't
    be restored are set aside, as long as a whole one is left and nobody names them; those go into `left`."""
    report.repaired += set_joined_aside(records)
    for fault in report.faults:
        if fault.kind == "index":
            _rebuild_index(records, fault, report)
    gone = _acknowledge(records, report)
    aside = [slot for slot in sorted(report.hit) if _set_aside(records, slot, report)]
    if aside or gone or any(fault.kind == "hint" for fault in report.faults):
        _rebuild_hint(records, report)
    return report


def _acknowledge(records: PipelineRecords, report: Checked) -> list[Slot]:
    try:
        gone = acknowledge_losses(records)
    except Damage:
        # A base or a claim can't be read: what counts is not known, and nothing more is decided.
        return []
    report.repaired += [f"{slot}: its manifest is gone, and the slot is forgotten now" for slot in gone]
    return gone


def _rebuild_hint(records: PipelineRecords, report: Checked) -> None:
    try:
        slot = newest(records.world())
    except Damage:
        return
    if slot is not None:
        records.put_hint(slot)
        report.repaired.append(f"{records.keys.latest}: now names {slot}")


def _rebuild_index(records: PipelineRecords, fault: Fault, report: Checked) -> None:
    """Write, beside the pack, the index that its manifests know; the pack itself is never written again."""
    members: set[Member] = set()
    for slot in records.world().counted():
        try:
            manifest = records.manifest(slot)
        except (Damage, ObjectMissing):
            continue
        for _, artifact in manifest.artifacts():
            if artifact.path == fault.where and artifact.offset is not None:
                members.add(Member(artifact.offset, artifact.size_bytes, artifact.sha256))
    key = f"{records.keys.prefix}{fault.where}.index"
    records.store.create(key, encode_index(members))
    report.repaired.append(f"{fault.where}: its index now stands beside it")


def _set_aside(records: PipelineRecords, slot: Slot, report: Checked) -> bool:
    """Forget a checkpoint that can't be restored, with the same handshake as a prune; its manifest moves to aside/."""
    world = records.world()
    whole = [s for s in timeline(world) if s not in report.hit]
    if slot not in world.slots or slot in world.forgotten:
        return False
    if not whole:
        report.left.append(f"{slot}: not set aside, no whole checkpoint would be left")
        return False
    token, attempt = new_token(), records.attempts(slot).get(slot, 0)
    intent = records.keys.intent(slot, token)
    records.create(intent, Intent(token=token, generation=slot.generation, slot=slot.number, attempt=attempt))
    if not verify_integrity(records, slot).hit:
        # Whole after all: it was looked at while it was being written or copied.
        records.drop(intent)
        return False
    held = needs(records).get(slot)
    if held:
        records.drop(intent)
        report.left.append(f"{slot}: not set aside, {', '.join(held)}")
        return False
    # No bytes are listed: healthy checkpoints may share them, and the sweep removes what nothing names.
    decision = Decision(token=token, generation=slot.generation, slot=slot.number, objects=[], why="damaged")
    if not records.create(records.keys.decision(slot, attempt), decision):
        records.drop(intent)
        return False
    key = records.keys.manifest(slot)
    records.store.copy(key, f"{records.keys.aside}{slot}.json.{token}")
    records.drop(key)
    records.drop(intent)
    report.repaired.append(f"{slot}: set aside as {records.keys.aside}{slot}.json.{token}")
    return True
