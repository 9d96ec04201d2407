"""The virtual file system: paths, mounts, inodes, open files and descriptors."""
