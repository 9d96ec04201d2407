"""Program phases offline: basic block vectors, clustering, simulation points (SimPoint)."""
