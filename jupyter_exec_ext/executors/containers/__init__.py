"""What a server in a container takes: an engine, an image, a way to it, its output, and somebody who cleans up."""
