"""Modules that all packages share: files on disk, quantities, YAML with line numbers. They import no other package."""
