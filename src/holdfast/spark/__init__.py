"""Spark's checkpoint directory: read, cut, captured and laid down again as plain files."""
