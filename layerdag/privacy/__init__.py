"""What samples give away: copies, membership, attacks, audits."""
