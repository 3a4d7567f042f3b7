"""Operating-system helpers of all layers: removal of hostile trees, exhaustion, leftover processes, worker threads."""
