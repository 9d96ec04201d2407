"""The compiler wrapper that a project's own build calls as its compiler."""
