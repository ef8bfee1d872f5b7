"""What `memcon bench` measures beside a sweep: the policy in process with its peers, and the sharing of one table."""
