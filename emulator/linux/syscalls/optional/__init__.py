"""System calls that few programs use: System V IPC, inotify, signalfd, pidfd."""
