"""Many runs: each is brought to its end once, here, on a Ray cluster or through Slurm."""
