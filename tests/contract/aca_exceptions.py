"""Tests of the contract that cannot pass on kernels in ACA sessions, each with its reason.

`docs/contributing/aca-contract.md` has this table, and `docs/aca/limits.md` has the reasons. Each of these tests must
fail on such a kernel: one that passes is reported, so that the table stays true. Those in `BY_LUCK` may do either.
"""

from __future__ import annotations

_INTERRUPT = "The service cannot interrupt code: it runs until its time limit, or until its session is ended."
_STREAM = "The service answers a run only when it has ended."
_LATE = "The service answers a run only when it has ended, so there may be nothing left to cancel."
_DEATH = "The service does not report how a kernel ended: its exit code is always 1."
_IDLE = "The service does not report the end of an idle session: the next run finds it, and its code does not run."
_INPUT = "The service cannot ask for input: `input()` raises `StdinNotImplementedError`."
_CHANGES = "A list of the files that a run changed would take another request after each run."
_GONE = "Files are kept in the session and end with it; a restart begins another session."
_NAMES = "The endpoint decodes a name such as `a%20b`, because AutoGen's client sends quoted names."
_WHOLE = "A file is sent to the session when all of it has arrived, so half an upload is never visible."

_DIRECTORY = "Code of ours that chooses a directory would be one more call of the service, at each start."

#: By module and name of the test.
EXCEPTIONS = {
    "test_attach::test_ending_the_session_leaves_the_kernel_and_its_variables": _INTERRUPT,
    "test_attach::test_cancelling_what_waits_for_the_person_leaves_the_persons_code_running": _LATE,
    "test_attach::test_the_persons_interrupt_and_restart_end_the_execution": _INTERRUPT,
    "test_attach::test_the_session_ends_with_the_kernel": _STREAM,
    "test_control::test_code_that_takes_too_long_is_stopped_and_the_state_kept": _INTERRUPT,
    "test_control::test_the_time_limit_is_total_however_much_the_code_prints": _INTERRUPT,
    "test_control::test_a_running_execution_is_cancelled_and_its_code_stops": _LATE,
    "test_control::test_a_running_execution_can_be_cancelled_right_away": _INTERRUPT,
    "test_control::test_an_interrupt_ends_the_code_as_ctrl_c_would": _INTERRUPT,
    "test_control::test_a_kernel_that_exits_is_named_with_its_code_at_once": _DEATH,
    "test_control::test_a_kernel_that_is_killed_is_named_with_its_signal": _DEATH,
    "test_control::test_a_kernel_that_crashes_is_named_with_its_signal": _DEATH,
    "test_control::test_a_kernel_that_dies_while_idle_is_replaced": _IDLE,
    "test_control::test_input_is_answered_from_elsewhere": _INPUT,
    "test_files::test_an_execution_reports_what_it_created_and_changed": _CHANGES,
    "test_files::test_files_outlive_the_session_and_its_restarts": _GONE,
    "test_files::test_every_name_makes_the_round_trip": _NAMES,
    "test_files::test_half_an_upload_is_no_file": _WHOLE,
    "test_fresh_runs::test_a_run_that_kills_its_kernel_is_told_of": _DEATH,
    "test_fresh_runs::test_events_come_and_input_is_answered": _INPUT,
    "test_results::test_input_is_answered": _INPUT,
    "test_results_standard::test_input_is_answered": _INPUT,
    "test_results_standard::test_code_that_takes_too_long_is_stopped_and_the_state_kept": _INTERRUPT,
    "test_run_options::test_env_of_a_run_is_restored_after_success_error_and_timeout": _INTERRUPT,
    "test_run_options::test_session_begins_in_its_directory_and_returns_there_after_a_restart": _DIRECTORY,
    "test_streams::test_events_come_while_the_code_runs": _STREAM,
    "test_streams::test_a_log_is_read_again_from_the_start_and_from_a_cursor": _STREAM,
}

#: Reasons of tests that may fail or pass.
BY_LUCK = frozenset({_LATE})
