"""ACA sessions on the wire, pure: addresses, requests, results, files, errors."""
