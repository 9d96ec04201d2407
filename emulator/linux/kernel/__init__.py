"""Kernel objects: tasks, the scheduler, wait queues, signals, clocks, sockets; and the kernel that owns them."""
