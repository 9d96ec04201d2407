"""Specifications of software metrics in YAML."""
