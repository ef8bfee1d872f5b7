"""What serves the policy: journal, wire, listener, Ray Serve shells and the client."""
