"""Pipelines: a query with named sources and transactional sinks, exactly once through crash, restore and rewind."""
