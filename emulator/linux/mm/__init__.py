"""Memory of files: the page cache behind shared mappings."""
