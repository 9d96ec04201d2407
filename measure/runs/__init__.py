"""What a campaign asks for, and its runs: the model of its file, builds, the plan, the store, and the execution."""
