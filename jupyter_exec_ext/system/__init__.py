"""Operating-system helpers of all layers: removal of hostile trees, resources, leftover processes, worker threads."""
