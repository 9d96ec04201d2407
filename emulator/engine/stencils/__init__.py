"""Copy and patch: host code of a block, emitted by copying precompiled stencils and filling in their holes."""
