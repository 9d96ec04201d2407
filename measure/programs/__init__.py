"""The catalogue of programs, and third-party sources pinned by version and hash."""
