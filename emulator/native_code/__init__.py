"""From LLVM's text to code in memory: LLVM, object files, code that is only copied, and what is kept on disk."""
