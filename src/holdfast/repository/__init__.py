"""Typed objects over a store: records, artifacts and packs."""
