"""The C and C++ compiler that programs are built with: zig, its C library, and flags that it cannot take."""
