"""Keeps the files of trials in a folder or an object store that every node reaches."""
