"""What translations do beside running the guest: columns of events, inline functions, followed lines."""
