"""Compiles LLVM's text to host code, links its object files, and keeps the linked code on disk."""
