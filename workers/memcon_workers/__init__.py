"""What runs inside a worker: streams of tasks, agent frameworks, backbones and benchmarks."""
