"""The sources of a pipeline as they are now: what is still in them of what a start would read again."""
