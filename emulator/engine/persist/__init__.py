"""Translations kept on disk for later processes, and the code shadow that tells whether they still hold."""
