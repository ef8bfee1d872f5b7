"""What our server is measured beside: the afternoon's work (FastAPI + Redis), and a Serve ingress that does nothing."""
