# JupyterLab with exec/v1 and its front end. In a checkout, with Node.js:
#
#     REQUIRE_LABEXTENSION=1 pip wheel --no-deps --wheel-dir dist .
#     docker build -t jupyter-exec-lab -f containers/lab.Dockerfile dist
#
# The token is in the variable JUPYTER_TOKEN or TOKEN, or in the file that JUPYTER_TOKEN_FILE names, such as a secret of the
# engine's. Without any of them a new one is made, and logged.

FROM docker.io/library/python:3.11-slim-bookworm

# Kernels of scoped tokens get a sandbox where the container may create user namespaces: see docs/howto/container.md.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*

# Any user that the container runs as has a home and a working directory.
RUN useradd --uid 1000 --home-dir /var/lib/jupyter-exec agent && \
    install -d -m 0777 /var/lib/jupyter-exec /workspace
ENV HOME=/var/lib/jupyter-exec

# Layers that seldom change come first: a new version of the package alone is built in seconds.
RUN python -m pip install --no-cache-dir --root-user-action=ignore --progress-bar=off \
    "jupyterlab>=4.6.4,<5" "matplotlib>=3.9" "pandas>=2.2"
COPY *.whl /tmp/
RUN python -m pip install --no-cache-dir --root-user-action=ignore --progress-bar=off /tmp/*.whl && \
    jupyter server extension list 2>&1 | grep -q "jupyter_exec_ext.*OK" && \
    jupyter labextension list 2>&1 | grep -q "@jupyter-exec-ext/labextension.*OK"

USER 1000:1000
WORKDIR /workspace
# Executions, their event logs and files, and what JupyterLab remembers.
VOLUME /var/lib/jupyter-exec
EXPOSE 8888

# A preflight needs no token and runs no code. -I: modules in the working directory are those of agents.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-I", "-c", "from http.client import HTTPConnection; c = HTTPConnection('127.0.0.1', 8888, timeout=5); c.request('OPTIONS', '/exec/v1/'); exit(c.getresponse().status >= 300)"]

CMD ["sh", "-c", "export JUPYTER_TOKEN=\"${JUPYTER_TOKEN:-${TOKEN:-}}\"; unset TOKEN; exec jupyter exec serve --ip 0.0.0.0 --port 8888 ${JUPYTER_TOKEN_FILE:+--token-file \"$JUPYTER_TOKEN_FILE\"} -- --ServerApp.default_url=/lab"]
