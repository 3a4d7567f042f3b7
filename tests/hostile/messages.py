"""Corpus of hostile messages: improper fields, improper frames, storms and forgeries, sent by the kernel's own sockets.

`connections` has those that replace the sockets or break the protocol below messages; `files` what is left on disk.
"""

from __future__ import annotations

from .trick import make_tricks

_VALUES = {
    "list": "[]",
    "object": "{}",
    "number": "7",
    "null": "None",
    "true": "True",
    "empty": "''",
    "long": "'y' * 100_000",
    "surrogate": "'\\ud800'",
    "nested": "[[[[[[[[[[]]]]]]]]]]",
}
_RAW_VALUES = {
    "empty": "b''",
    "list": "padded([])",
    "number": "padded(7)",
    "null": "padded(None)",
    "text": "padded('text')",
    "truncated": 'b\'{"msg_id": "x\' + PADDING.encode()',
    "bad_utf8": "b'{\"text\": \"' + PADDING.encode() + b'\\xff\\xfe\"}'",
    "nan": 'padded(b\'{"text": NaN, "name": Infinity}\')',
    "deep": "padded(nested(100_000))",
    "deep_objects": "padded(nested(100_000, b'{\"a\":', b'}')[:-100_000] + b'1' + b'}' * 100_000)",
    "long_number": "padded(b'{\"execution_count\":' + b'9' * 100_000 + b'}')",
    "same_keys": "padded(b'{' + b','.join([b'\"text\":\"x\"'] * 20_000) + b'}')",
    "huge_key": "part({'k' * 300_000 + PADDING: 1})",
}
_FIELDS = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata", "transient"),
    "execute_result": ("data", "execution_count"),
    "update_display_data": ("data", "transient"),
    "error": ("ename", "evalue", "traceback"),
    "status": ("execution_state",),
    "clear_output": ("wait",),
    "execute_input": ("code", "execution_count"),
    "comm_open": ("comm_id", "target_name"),
}


def _improper_fields() -> dict[str, str]:
    """Return messages with a wrong type of value in each field that the server reads."""
    found = {}
    for name, value in _VALUES.items():
        found[f"parent_id_{name}"] = f"send_parts(about={{'msg_id': {value}, 'msg_type': 'execute_request'}})"
        found[f"message_type_{name}"] = f"send_parts(header={{'msg_id': 'm', 'msg_type': {value}}})"
    for field in ("msg_id", "session", "version", "date"):
        for name in ("list", "number", "long"):
            header = f"{{'msg_id': 'm', 'msg_type': 'stream', '{field}': {_VALUES[name]}}}"
            found[f"header_{field}_{name}"] = f"send_parts(header={header})"
    for part in ("header", "about", "metadata", "content"):
        for name, value in _RAW_VALUES.items():
            found[f"{part}_{name}"] = f"send_parts({part}={value})"
    for msg_type, fields in _FIELDS.items():
        for field in fields:
            for name in ("list", "number", "null", "object"):
                found[f"{msg_type}_{field}_{name}"] = (
                    f"publish('{msg_type}', {{'padding': PADDING, '{field}': {_VALUES[name]}}})"
                )
    return found


_FRAMES = {
    "no_frames": "send(b'')",
    "delimiter_alone": "send(b'<IDS|MSG>')",
    "no_delimiter": "send(*signed(frames())[2:])",
    "two_delimiters": "send(b'<IDS|MSG>', *signed(frames()))",
    "no_signature": "parts = frames()\nsend(b'topic', b'<IDS|MSG>', b'', *parts)",
    "wrong_signature": "parts = frames()\nsend(b'topic', b'<IDS|MSG>', b'0' * 64, *parts)",
    "long_signature": "parts = frames()\nsend(b'topic', b'<IDS|MSG>', b'0' * (1 << 20), *parts)",
    "signature_not_ascii": "parts = frames()\nsend(b'topic', b'<IDS|MSG>', b'\\xff' * 64, *parts)",
    "signature_of_another": "parts = frames()\nsend(b'topic', b'<IDS|MSG>', kernel.session.sign([b'x']), *parts)",
    "three_parts": "send(*signed(frames()[:3]))",
    "two_parts": "send(*signed(frames()[:2]))",
    "one_part": "send(*signed(frames()[:1]))",
    "buffers": "send(*signed(frames()), *[PADDING.encode()] * 20)",
    "many_buffers": "send(*signed(frames()), *[b'x'] * 20_000)",
    "many_topics": "send(*[b't'] * 5_000, *signed(frames()))",
    "large_topic": "send(b't' * 1_000_000, *signed(frames())[1:])",
    "empty_frames": "send(*[b''] * 5_000)",
    "forgeries_of_signature": "parts = frames()\nflood(lambda: send(b'topic', b'<IDS|MSG>', b'0' * 64, *parts))",
    "the_same_message_again": "message = signed(frames())\nflood(lambda: send(*message))",
    "storm_of_improper_parents": "message = signed(frames(about={'msg_id': []}))\nflood(lambda: send(*message))",
    "storm_of_bad_json": "message = signed(frames(content=b'{' + PADDING.encode()))\nflood(lambda: send(*message))",
    "storm_of_deep_json": "message = signed(frames(content=padded(nested(20_000))))\nflood(lambda: send(*message))",
    "storm_of_kinds_of_errors": """
        number = iter(range(10**9))
        flood(lambda: send_parts(header={'msg_id': 'm', 'msg_type': {'k%d' % next(number): PADDING}}))
    """,
}
_OUTPUTS = {
    "many_mime_types": "publish('display_data', {'data': {'a/%d' % n: PADDING[:9] for n in range(20_000)}})",
    "million_mime_types": """
        publish('display_data', {'data': {'a/%d' % n: '' for n in range(1_000_000 if LARGE else 99)}})
    """,
    "long_mime_types": "publish('display_data', {'data': {str(n) + PADDING: '' for n in range(20)}})",
    "odd_mime_types": """
        publish('display_data', {'data': {'': '', '\\n': PADDING, '\\0': [], '../x': 1, 'text/plain': {}}})
    """,
    "mime_value_nested": """
        publish('display_data', {'data': {'application/json': [[[[[[PADDING]]]]]], 'image/png': []}})
    """,
    "mime_bad_base64": "publish('display_data', {'data': {'image/png': '!' + PADDING, 'application/pdf': '='}})",
    "many_metadata": """
        publish('display_data', {'data': {}, 'metadata': {'m%d' % n: PADDING[:99] for n in range(5_000)}})
    """,
    "display_id_long": "publish('display_data', {'data': {}, 'transient': {'display_id': PADDING * 10}})",
    "display_id_list": "publish('display_data', {'data': {}, 'transient': {'display_id': [PADDING]}})",
    "display_ids": """
        number = iter(range(10**9))
        flood(lambda: publish('display_data', {
            'data': {'text/plain': ''}, 'transient': {'display_id': str(next(number)) + PADDING}}))
    """,
    "update_unknown_display": """
        number = iter(range(10**9))
        flood(lambda: publish('update_display_data', {
            'data': {'text/plain': PADDING}, 'transient': {'display_id': str(next(number))}}))
    """,
    "update_display_storm": """
        publish('display_data', {'data': {'text/plain': ''}, 'transient': {'display_id': 'd'}})
        flood(lambda: publish('update_display_data', {
            'data': {'text/plain': PADDING}, 'transient': {'display_id': 'd'}}))
    """,
    "clear_output_storm": "flood(lambda: publish('clear_output', {'wait': False, 'padding': PADDING}))",
    "clear_output_wait_storm": "flood(lambda: publish('clear_output', {'wait': True}))",
    "clear_and_print": "flood(lambda: (publish('clear_output', {'wait': True}), print(PADDING)))",
    "print_storm": "flood(lambda: print(PADDING))",
    "print_flushed": "flood(lambda: print(PADDING[:9], flush=True))",
    "both_streams": "import sys\nflood(lambda: (print(PADDING[:9]), print(PADDING[:9], file=sys.stderr)))",
    "stream_of_odd_name": "flood(lambda: publish('stream', {'name': 'stdin', 'text': PADDING}))",
    "stream_of_many_names": """
        number = iter(range(10**9))
        flood(lambda: publish('stream', {'name': 's%d' % next(number), 'text': PADDING}))
    """,
    "stream_name_long": "publish('stream', {'name': 'n' + PADDING * 5, 'text': 'x'})",
    "stream_empty_storm": "flood(lambda: publish('stream', {'name': 'stdout', 'text': ''}))",
    "stream_control_characters": """
        publish('stream', {'name': 'stdout', 'text': '\\x1b]0;x\\x07\\x00\\r\\n' * len(PADDING)})
    """,
    "stream_backspaces": "print('x' * 1000 + '\\b' * len(PADDING) + '\\r' * len(PADDING))",
    "stream_escapes_largest": "publish('stream', {'name': 'stdout', 'text': '\\x01' * len(PADDING)})",
    "stream_surrogates": "publish('stream', {'name': 'stdout', 'text': '\\ud800' * 1000})",
    "traceback_giant": """
        publish('error', {'ename': 'E', 'evalue': PADDING, 'traceback': ['line'] * (100_000 if LARGE else 9)})
    """,
    "traceback_of_lists": "publish('error', {'ename': [], 'evalue': {}, 'traceback': [[PADDING]] * 50})",
    "error_storm": "flood(lambda: publish('error', {'ename': 'E', 'evalue': PADDING, 'traceback': []}))",
    "exception_with_a_long_name": "raise type('E' + PADDING * 3, (Exception,), {})(PADDING)",
    "exception_group_deep": """
        error = ValueError(PADDING)
        for _ in range(200):
            error = RuntimeError(error)
        raise error
    """,
    "results": "flood(lambda: publish('execute_result', {'execution_count': 1, 'data': {'text/plain': PADDING}}))",
    "result_count_huge": "publish('execute_result', {'execution_count': 10**400, 'data': {'text/plain': PADDING}})",
    "unknown_types": """
        number = iter(range(10**9))
        flood(lambda: publish('unknown_%d' % next(number), {'text': PADDING}))
    """,
}
_FORGERIES = {
    "idle_early": "publish('status', {'execution_state': 'idle'})\nprint(PADDING)",
    "idle_storm": "flood(lambda: publish('status', {'execution_state': 'idle', 'padding': PADDING}))",
    "busy_storm": "flood(lambda: publish('status', {'execution_state': 'busy', 'padding': PADDING}))",
    "busy_and_idle_storm": "flood(lambda: [publish('status', {'execution_state': s}) for s in ('busy', 'idle')])",
    "starting_storm": "flood(lambda: publish('status', {'execution_state': 'starting'}, parent={}))",
    "restarting": "publish('status', {'execution_state': 'restarting'}, parent={})\nprint(PADDING)",
    "dead": "publish('status', {'execution_state': 'dead'}, parent={})\nprint(PADDING)",
    "status_unknown": "publish('status', {'execution_state': 'x' + PADDING})",
    "welcome_forged": "flood(lambda: publish('iopub_welcome', {'subscription': PADDING}, parent={}))",
    "execute_input_forged": "flood(lambda: publish('execute_input', {'code': PADDING, 'execution_count': 7}))",
    "reply_ok_early": "reply({'status': 'ok', 'execution_count': 1, 'padding': PADDING})",
    "reply_error_early": "reply({'status': 'error', 'ename': 'E', 'evalue': PADDING, 'traceback': [PADDING]})",
    "reply_aborted_early": "reply({'status': 'aborted'})\nprint(PADDING)",
    "reply_storm": "flood(lambda: reply({'status': 'error', 'ename': 'E', 'evalue': '', 'traceback': [PADDING]}))",
    "reply_status_list": "reply({'status': [PADDING]})",
    "reply_count_list": "reply({'status': 'ok', 'execution_count': [PADDING]})",
    "reply_without_status": "reply({'padding': PADDING})",
    "reply_not_an_object": "reply([PADDING])",
    "reply_with_payloads": """
        reply({'status': 'ok', 'payload': [{'source': 'set_next_input', 'text': PADDING, 'replace': True}] * 50})
    """,
    "reply_with_odd_payload": "reply({'status': 'ok', 'payload': {'source': [PADDING]}})",
    "reply_with_expressions": """
        reply({'status': 'ok', 'user_expressions': {'e%d' % n: PADDING[:99] for n in range(5_000)}})
    """,
    "reply_for_another": """
        flood(lambda: reply({'status': 'ok', 'padding': PADDING}, parent={'header': {'msg_id': 'other'}}))
    """,
    "reply_of_another_type": "flood(lambda: reply({'status': 'ok', 'padding': PADDING}, 'kernel_info_reply'))",
    "reply_on_iopub": "flood(lambda: publish('execute_reply', {'status': 'ok', 'padding': PADDING}))",
    "reply_and_idle_then_output": """
        reply({'status': 'ok', 'execution_count': 1})
        publish('status', {'execution_state': 'idle'})
        flood(lambda: print(PADDING))
    """,
    "error_on_shell": "reply({'ename': 'E', 'evalue': PADDING, 'traceback': []}, 'error')",
    "shutdown_reply_forged": "answer_control({'status': 'ok', 'restart': False, 'padding': PADDING}, 'shutdown_reply')",
    "interrupt_reply_forged": "flood(lambda: answer_control({'status': 'ok', 'padding': PADDING}, 'interrupt_reply'))",
    "control_storm": "flood(lambda: answer_control({'status': 'ok', 'padding': PADDING}))",
    "control_for_another": "flood(lambda: answer_control({'padding': PADDING}, about={'header': {'msg_id': []}}))",
    "control_stream": "flood(lambda: answer_control({'name': 'stdout', 'text': PADDING}, 'stream'))",
    "payload_page": "get_ipython().payload_manager.write_payload({'source': 'page', 'data': {'text/plain': PADDING}})",
    "payload_many": """
        for n in range(5_000):
            get_ipython().payload_manager.write_payload({'source': 's%d' % n, 'text': PADDING[:99]}, single=False)
    """,
    "input_unasked": "ask({'prompt': PADDING, 'password': False})",
    "input_storm": "flood(lambda: ask({'prompt': PADDING, 'password': False}))",
    "input_hundred_thousand": "for _ in range(100_000 if LARGE else 3_000): ask({'prompt': 'p'})",
    "input_prompt_list": "ask({'prompt': [PADDING], 'password': {}})",
    "input_of_another_type": "flood(lambda: ask({'padding': PADDING}, 'execute_reply'))",
    "input_on_iopub": "flood(lambda: publish('input_request', {'prompt': PADDING}))",
    "input_called": "try:\n    input(PADDING)\nexcept Exception as error:\n    print(error)",
    "getpass_called": """
        import getpass
        try:
            getpass.getpass(PADDING)
        except Exception as error:
            print(error)
    """,
    "comm_storm": "flood(lambda: publish('comm_msg', {'comm_id': 'c', 'data': {'state': PADDING}}))",
    "comm_opens": """
        number = iter(range(10**9))
        flood(lambda: publish('comm_open', {'comm_id': str(next(number)) + PADDING, 'target_name': 't', 'data': {}}))
    """,
    "comm_close_storm": "flood(lambda: publish('comm_close', {'comm_id': PADDING, 'data': {}}))",
    "debug_events": "flood(lambda: publish('debug_event', {'event': PADDING, 'seq': 1}))",
    "after_idle": """
        def work():
            time.sleep(0.1)
            flood(lambda: publish('stream', {'name': 'stdout', 'text': PADDING}, parent=about))
        about = parent()
        threading.Thread(target=work, daemon=True).start()
    """,
    "after_idle_status": """
        about = parent()
        threading.Thread(target=lambda: flood(lambda: [publish('status', {'execution_state': s}, parent=about)
            for s in ('busy', 'idle')]), daemon=True).start()
    """,
    "after_idle_replies": """
        about, who, content = parent(), ident(), {'status': 'ok', 'padding': PADDING}
        def answer(): kernel.session.send(kernel.shell_stream, 'execute_reply', content, about, ident=who)
        threading.Thread(target=lambda: flood(answer), daemon=True).start()
    """,
    "without_parent": "flood(lambda: publish('stream', {'name': 'stdout', 'text': PADDING}, parent={}))",
    "prints_at_exit": "import atexit\natexit.register(lambda: flood(lambda: print(PADDING, flush=True)))",
    "stderr_of_the_process": "flood(lambda: os.write(2, PADDING.encode() + b'\\n\\x1b[2J\\r'))",
    "stdout_of_the_process": "flood(lambda: os.write(1, b'\\xff' + PADDING.encode() + b'\\n'))",
    "improper_shell_requests": """
        import zmq
        context = zmq.Context()
        made = context.socket(zmq.DEALER)
        made.linger = 0
        made.connect('ipc://' + socket_path('shell'))
        for _ in range(200):
            made.send_multipart([b'<IDS|MSG>', b'0' * 64, b'{', PADDING.encode()])
        made.close()
    """,
    "heartbeat_storm": """
        import zmq
        made = zmq.Context.instance().socket(zmq.REQ)
        made.linger, made.rcvtimeo = 0, 200
        made.connect('ipc://' + socket_path('hb'))
        try:
            made.send(PADDING.encode())
            made.recv()
        except zmq.ZMQError as error:
            print(error)
        made.close()
    """,
}
#: The kernel is of no use after these: it does not answer, or has ended.
_ENDLESS = {
    "endless_prints": "while True: print(PADDING)",
    "endless_prints_deaf": """
        while True:
            try:
                while True: print(PADDING)
            except BaseException:
                pass
    """,
    "endless_silence_deaf": """
        import signal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True: time.sleep(1)
    """,
    "endless_busy_deaf": """
        while True:
            try:
                while True: pass
            except BaseException:
                pass
    """,
    "endless_native": "sum(range(10**12))",
    "endless_regular_expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "endless_idle": "while True: publish('status', {'execution_state': 'idle'}); print(PADDING)",
    "endless_busy": "while True: publish('status', {'execution_state': 'busy', 'padding': PADDING})",
    "endless_replies": "while True: reply({'status': 'ok', 'padding': PADDING})",
    "endless_input": "while True: ask({'prompt': PADDING})",
    "endless_displays": "while True: publish('display_data', {'data': {'text/plain': PADDING}})",
    "endless_updates": """
        while True: publish('update_display_data', {'data': {}, 'transient': {'display_id': 'd' + PADDING}})
    """,
    "endless_improper": "message = signed(frames(about={'msg_id': [PADDING]}))\nwhile True: send(*message)",
    "endless_large_improper": "message = signed(frames(content=b'[' + b'9' * (20 << 20)))\nwhile True: send(*message)",
    "endless_threads_of_output": """
        for _ in range(8):
            threading.Thread(target=lambda: [print(PADDING) for _ in range(10**9)], daemon=True).start()
        time.sleep(60)
    """,
    "endless_control": "while True: answer_control({'padding': PADDING})",
    "messages_while_cancelled": """
        import signal
        signal.signal(signal.SIGINT, lambda *_: [publish('status', {'execution_state': 'busy'}) for _ in range(1000)])
        while True: print(PADDING); time.sleep(0.001)
    """,
    "interrupt_reported_and_gone_on": """
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                reply({'status': 'error', 'ename': 'KeyboardInterrupt', 'evalue': PADDING, 'traceback': []})
    """,
    "one_message_of_64_mib": "publish('stream', {'name': 'stdout', 'text': 'x' * (64 << 20)})",
    "one_message_of_200_mib": "publish('stream', {'name': 'stdout', 'text': 'x' * (200 << 20)})",
    "one_message_of_numbers": "send_parts(content=b'{\"data\":[' + b'1,' * (10_000_000 if LARGE else 1_000) + b'1]}')",
    "one_message_of_lists": "send_parts(content=b'{\"data\":[' + b'[],' * (8_000_000 if LARGE else 1_000) + b'1]}')",
    "one_message_of_objects": "send_parts(content=b'{\"data\":[' + b'{},' * (8_000_000 if LARGE else 1_000) + b'1]}')",
    "shutdown_by_itself": "kernel.do_shutdown(False)\nprint(PADDING)\nos._exit(0)",
    "stopped": "import signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "stopped_in_output": """
        import signal
        for _ in range(200): print(PADDING)
        os.kill(os.getpid(), signal.SIGSTOP)
    """,
    "killed": "import signal\nprint(PADDING)\nos.kill(os.getpid(), signal.SIGKILL)",
    "killed_in_output": "print(PADDING * 50)\nos._exit(1)",
    "aborted": "print(PADDING)\nos.abort()",
    "forked_and_ended": "if os.fork(): os._exit(0)\nwhile True: time.sleep(1)",
    "child_that_prints": "if not os.fork():\n    while True: os.write(1, PADDING.encode() + b'\\n')\ntime.sleep(60)",
    "threads": """
        try:
            while True: threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        except RuntimeError as error:
            print(error)
    """,
    "memory": "kept = []\ntry:\n    while True: kept.append(bytearray(16 << 20))\nexcept MemoryError: pass",
    "descriptors": """
        kept = []
        try:
            while True: kept.append(os.open('/dev/null', 0))
        except OSError as error: print(error)
    """,
    "shell_of_the_kernel_replaced": "kernel.do_execute = None\nkernel._publish_status = None\nprint(PADDING)",
    "session_of_the_kernel_replaced": "kernel.session.key = b'other'\nprint(PADDING)",
    "session_without_a_key": "kernel.session.key = b''\nprint(PADDING)",
    "reply_never": "kernel.session.send = lambda *_, **__: None\nprint(PADDING)",
    "shutdown_refused": """
        import signal
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
        kernel.shutdown_request = kernel.interrupt_request = lambda *_: flood(lambda: print(PADDING), 60)
        kernel.control_handlers.clear()
        print(PADDING)
    """,
}

MESSAGES = [
    *make_tricks({**_improper_fields(), **_FRAMES, **_OUTPUTS, **_FORGERIES}),
    *make_tricks(_ENDLESS, breaks_kernel=True),
]
