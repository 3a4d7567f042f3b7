"""Azure Container Apps (ACA) dynamic sessions: protocol, client, executor, endpoint and kernel provisioner."""
