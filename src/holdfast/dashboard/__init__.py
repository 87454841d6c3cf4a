"""The dashboard: a repository in a browser. One file a page; everything is rendered here, and nothing is built.

It reads through the repository alone, so it sees what anybody sees, and it needs neither Spark nor Java.
"""
