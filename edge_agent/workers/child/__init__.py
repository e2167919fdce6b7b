"""What runs inside a worker process: it loads, decodes, infers and answers, and nothing else."""
