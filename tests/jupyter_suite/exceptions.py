"""Tests of Jupyter Server 2.21 that the standard API fails on purpose, with the reasons."""

from __future__ import annotations

_IDS = "the id of a kernel follows from its session's: a client that could choose it could choose another's"
_PATHS = "where files are on the server is not for scoped tokens: there is no api/resolvePath"
_KERNEL = "a session keeps its kernel: PATCH changes its path, name and type alone"
_INSIDE = "changes an object inside the server"

EXCEPTIONS: dict[str, str] = {
    "kernels.test_api::test_kernel_handler": "a 404 says in other words that there is no such kernel for this token",
    "kernels.test_api::test_post_kernel_with_client_supplied_id": _IDS,
    "sessions.test_api::test_create_with_client_supplied_kernel_id": _IDS,
    **{
        f"kernels.test_api::test_resolve_path_{name}": _PATHS
        for name in (
            "kernel",
            "missing",
            "missing_kernel_reports_unresolved",
            "server",
            "server_and_kernel",
            "server_expands_user",
            "server_expands_user_normalizes_path",
            "server_expands_user_rejects_outside_root",
            "server_traversal",
        )
    },
    "kernelspecs.test_api::test_get_kernel_resource_file": "files of kernelspecs, such as logos, are not served",
    "sessions.test_api::test_create_bad": _INSIDE,
    "sessions.test_api::test_create_session_duplicate_kernel_id_returns_409": _INSIDE,
    "sessions.test_api::test_create_with_kernel_id": _KERNEL,
    **{f"sessions.test_api::test_modify_{name}": _KERNEL for name in ("kernel_id", "kernel_name")},
}
