"""What translations do beside running the guest: columns of events, inline functions, line timestamps."""
