"""From Python into translations: the calling convention, the functions between, the handler for host faults."""
