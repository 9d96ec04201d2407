"""Campaigns: from the YAML file to stored runs and their analysis."""
