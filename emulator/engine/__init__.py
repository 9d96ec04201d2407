"""Engines that execute guest code: the oracle interpreter and the LLVM translation tiers."""
