"""Encryption: a store around another one, whose objects and names can't be read without the repository's key."""
