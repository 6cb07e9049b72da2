"""Runs a program as a trial: its arguments, its processes, its output and its reports."""
