"""What differs between two traces, jobs or graphs."""
