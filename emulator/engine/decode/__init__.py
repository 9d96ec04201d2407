"""From guest memory to basic blocks: discovery, the block table, block interning, and the interpreter's operations."""
