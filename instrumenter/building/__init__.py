"""Builds executables from sources: the cross-compiler, single programs, and projects with their own build."""
