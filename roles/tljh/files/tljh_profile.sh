# shellcheck shell=sh
# Terminals of JupyterHub find what notebooks find: a login shell begins with the PATH of the system.
if [ -n "${JUPYTERHUB_USER:-}" ] && [ -n "${CUDAHUB_PATH:-}" ]; then
    PATH=$CUDAHUB_PATH:$PATH
    export PATH
fi
