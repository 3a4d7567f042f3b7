"""What of the contract a kernel that is an ACA session cannot keep, and why; `docs/aca.md` has the same table.

Each of these tests must fail on such a kernel: one that passes is reported, so that the table stays true.
"""

from __future__ import annotations

_INTERRUPT = "The service has no interrupt: what runs goes on until its time limit, or the session is ended."
_STREAM = "The service tells of a run when it has ended, and not before."
_DEATH = "The service does not tell a kernel that died from code that failed; the next run finds a fresh session."
_INPUT = "The service has no way to ask for input: the code gets `StdinNotImplementedError`."
_FILES = "The session's files are in the session; `exec/v1` does not reach them yet."

#: By module and name of the test.
EXCEPTIONS = {
    "test_attach::test_ending_the_session_leaves_the_kernel_and_its_variables": _INTERRUPT,
    "test_attach::test_cancelling_what_waits_for_the_person_leaves_the_persons_code_running": _STREAM,
    "test_attach::test_the_persons_interrupt_and_restart_end_the_execution": _INTERRUPT,
    "test_attach::test_the_session_ends_with_the_kernel": _STREAM,
    "test_control::test_code_that_takes_too_long_is_stopped_and_the_state_kept": _INTERRUPT,
    "test_control::test_the_time_limit_is_total_however_much_the_code_prints": _INTERRUPT,
    "test_control::test_a_running_execution_is_cancelled_and_its_code_stops": _INTERRUPT,
    "test_control::test_a_running_execution_can_be_cancelled_right_away": _INTERRUPT,
    "test_control::test_an_interrupt_ends_the_code_as_ctrl_c_would": _INTERRUPT,
    "test_control::test_a_kernel_that_exits_is_named_with_its_code_at_once": _DEATH,
    "test_control::test_a_kernel_that_is_killed_is_named_with_its_signal": _DEATH,
    "test_control::test_a_kernel_that_crashes_is_named_with_its_signal": _DEATH,
    "test_control::test_what_is_queued_behind_a_dying_kernel_runs_in_a_fresh_one": _DEATH,
    "test_control::test_a_kernel_that_dies_while_idle_is_replaced": _DEATH,
    "test_control::test_input_is_answered_from_elsewhere": _INPUT,
    "test_files::test_what_goes_up_comes_down": _FILES,
    "test_files::test_a_file_object_is_uploaded_from_where_it_stands": _FILES,
    "test_files::test_sessions_do_not_share_files": _FILES,
    "test_files::test_an_unannounced_length_does_not_get_past_the_quota": _FILES,
    "test_files::test_a_local_file_that_is_missing_is_a_local_error": _FILES,
    "test_files::test_files_are_where_the_code_runs": _FILES,
    "test_files::test_an_execution_reports_what_it_created_and_changed": _FILES,
    "test_files::test_files_outlive_the_session_and_its_restarts": _FILES,
    "test_files::test_quotas_hold_and_are_named": _FILES,
    "test_files::test_every_name_makes_the_round_trip": _FILES,
    "test_files::test_what_is_no_file_is_refused": _FILES,
    "test_files::test_half_an_upload_is_no_file": _FILES,
    "test_results::test_input_is_answered": _INPUT,
    "test_results_standard::test_input_is_answered": _INPUT,
    "test_results_standard::test_code_that_takes_too_long_is_stopped_and_the_state_kept": _INTERRUPT,
    "test_results_standard::test_a_dead_kernel_is_named_and_the_next_run_works": _DEATH,
    "test_streams::test_events_come_while_the_code_runs": _STREAM,
    "test_streams::test_a_log_is_read_again_from_the_start_and_from_a_cursor": _STREAM,
}
