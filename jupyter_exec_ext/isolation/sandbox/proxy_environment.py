"""Variables by which programs in a sandbox find its proxy, and the certificates that they trust with it.

Each program has names of its own. Most read these: curl, git, pip, uv, conda, wget, R, Julia, and Python's libraries. A
program that reads none has no way out of the sandbox.
"""

from __future__ import annotations

#: Where the proxy is, on the sandbox's own loopback interface.
PROXY_PORT = 3128
#: Where a sandbox sees the certificates that it trusts, if the proxy ends TLS for it.
CERTIFICATES = "/etc/jupyter-exec-certificates.pem"

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# The sandbox's own loopback interface is reached without the proxy, which would refuse it.
_DIRECT = "localhost,127.0.0.1,::1"
_TRUST = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CONDA_SSL_VERIFY"),
    *("NODE_EXTRA_CA_CERTS", "JULIA_SSL_CA_ROOTS_PATH"),
)


def proxy_environment(*, has_certificates: bool) -> dict[str, str]:
    """Return the variables for a kernel behind the proxy.

    Parameters
    ----------
    has_certificates : bool
        Whether the sandbox has `CERTIFICATES`, which holds the proxy's own.
    """
    url = f"http://127.0.0.1:{PROXY_PORT}"
    variables = {**dict.fromkeys(_PROXIES, url), "NO_PROXY": _DIRECT}
    # Some programs know the names in lower case alone: curl takes no HTTP_PROXY.
    variables.update({name.lower(): value for name, value in variables.items()})
    variables["NODE_USE_ENV_PROXY"] = "1"
    return {**variables, **(dict.fromkeys(_TRUST, CERTIFICATES) if has_certificates else {})}
