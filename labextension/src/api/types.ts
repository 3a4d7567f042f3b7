/** Records of `exec/v1`, as far as the front end reads them. `docs/reference/records.md` explains the fields. */

import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

export type Isolation = 'none' | 'landlock' | 'sandbox' | 'remote';
export type SessionState = 'starting' | 'idle' | 'busy' | 'restarting' | 'ended';

export interface ISession {
  readonly id: string;
  readonly owner: string;
  readonly kernel_name: string;
  readonly language: string;
  readonly state: SessionState;
  readonly created_at: string;
  readonly last_activity_at: string;
  readonly name: string;
  readonly kernel_id: string | null;
  readonly kernel_starts: number;
  readonly isolation: Isolation;
  readonly idle_timeout_seconds: number;
  readonly attached: boolean;
  /** The grant by which a token has attached to the kernel. */
  readonly grant_id: string | null;
  readonly ended_at: string | null;
  readonly ended_reason: string | null;
  /** The kinds of code that a person has approved for all of it. */
  readonly approved_kinds: readonly string[];
  /** Why it stands still until a person acts. */
  readonly waits_for: 'input' | 'approval' | null;
  /** The state in which its last execution ended; for an error with its name, as in `error: KeyError`. */
  readonly last_outcome: string | null;
  /** Ports of its programs that can be reached through the server; a server of an earlier version has none. */
  readonly open_ports?: readonly number[];
  /** Network rules that would allow what was refused to its programs; a server of an earlier version has none. */
  readonly wanted_rules?: readonly string[];
  /** Restores to checkpoints, the oldest first; a server of an earlier version has none. */
  readonly restores?: readonly IRestore[];
  /** The session of which it is a branch; a server of an earlier version has none. */
  readonly branch_of?: string | null;
  /** Why the last run has no automatic checkpoint, although there should be one; earlier servers have none. */
  readonly auto_checkpoint_problem?: string | null;
  /** Memory of the kernel and the processes below it, in an answer to `memory=true`. */
  readonly memory_bytes?: number | null;
}

/** State of a session that is kept. */
export interface ICheckpoint {
  readonly id: string;
  readonly session_id: string;
  readonly name: string;
  readonly created_at: string;
  readonly automatic: boolean;
  /** The last execution before it; null if there was none. */
  readonly after: string | null;
  /** True if it has the files of the session's working directory, too. */
  readonly files: boolean;
  /** Things that were left behind. */
  readonly lost: readonly { readonly kind: string; readonly name: string }[];
  /** Memory that it takes beside its session's; null if that is unknown. */
  readonly memory_bytes: number | null;
}

export interface IRestore {
  readonly checkpoint: string;
  readonly at: string;
  /** The last execution before the checkpoint; null if there was none. */
  readonly after: string | null;
  /** The last execution before the restore; null if there was none. */
  readonly before: string | null;
}

/** Something that has happened with a checkpoint. */
export interface ICheckpointEvent {
  /** That of the checkpoint; for a branch, the new one. */
  readonly session_id: string;
  readonly checkpoint_id: string;
}

export type ExecutionState =
  | 'awaiting_approval'
  | 'queued'
  | 'running'
  | 'ok'
  | 'error'
  | 'interrupted'
  | 'timeout'
  | 'cancelled'
  | 'rejected'
  | 'kernel_died'
  | 'oom_killed'
  | 'server_restarted'
  | 'server_lost'
  | 'token_revoked';

export interface IErrorInfo {
  readonly name: string;
  readonly value: string;
  readonly traceback: string;
}

export interface IFile {
  readonly path: string;
  readonly size_bytes: number;
  readonly mtime: string;
  readonly mime_type: string;
}

export interface IFileList {
  readonly files: readonly IFile[];
  readonly truncated: boolean;
}

/** The text of a file before and after a run; `before` is null for a file that the run has made. */
export interface IFileChange {
  readonly path: string;
  readonly before: string | null;
  readonly after: string;
}

/** Use of a session's kernel over the last hour, and its limits. */
export interface ISessionUsage {
  readonly measured: boolean;
  readonly samples: readonly { readonly at: string; readonly memory_bytes: number; readonly cpu: number }[];
  readonly processors: number;
  readonly max_memory_bytes: number | null;
  readonly max_cpu_seconds: number | null;
}

export interface IOpenedPort {
  readonly port: number;
  /** Opens it in one browser, once and within 30 seconds. */
  readonly browser_url: string | null;
  readonly browser_reason: string | null;
}

/** A request of a session's programs to the network. */
export interface INetworkRequest {
  readonly at: string;
  /** Empty if the request could not be read. */
  readonly host: string;
  readonly port: number;
  /** CONNECT or SOCKS for a tunnel. */
  readonly method: string;
  readonly path: string;
  readonly verdict: 'allowed' | 'refused' | 'failed';
  readonly rule: string;
  readonly reason: string;
  readonly bytes_sent: number;
  readonly bytes_received: number;
}

export interface ISessionNetwork {
  readonly network: 'none' | 'rules' | 'host';
  readonly rules: readonly string[];
  /** Rules that the owner has added for this session. */
  readonly added_rules: readonly string[];
  /** The oldest first. */
  readonly requests: readonly INetworkRequest[];
}

export interface ISpooledOutput {
  readonly name: string;
  readonly mime_type: string;
  readonly size_bytes: number;
  readonly complete: boolean;
}

export interface ITruncation {
  readonly stdout_bytes: number;
  readonly stderr_bytes: number;
  readonly display_bytes: number;
  readonly error_bytes: number;
  readonly spooled: readonly ISpooledOutput[];
  readonly unspooled_reason: string | null;
}

export interface IFinding {
  /** Kinds of code that can be approved for a session; empty if nothing else can share it. */
  readonly kind: string;
  readonly why: string;
  readonly line: number | null;
}

export interface IApproval {
  readonly why: string;
  readonly expires_at: string;
  readonly decision: 'approved' | 'edited' | 'rejected' | 'timeout' | null;
  readonly decided_by: string;
  readonly decided_at: string | null;
  readonly reason: string;
  readonly original_code: string | null;
  readonly findings: readonly IFinding[];
  readonly approved_kinds: readonly string[];
}

/** An execution without its outputs, as lists and the change feed have it. */
export interface IExecution {
  readonly id: string;
  readonly session_id: string;
  readonly state: ExecutionState;
  readonly code: string;
  readonly created_at: string;
  readonly language: string | null;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly execution_count: number | null;
  readonly error: IErrorInfo | null;
  readonly reason: string | null;
  readonly truncated: ITruncation | null;
  readonly files: readonly IFile[];
  readonly files_omitted: number;
  readonly approval: IApproval | null;
}

/** An execution that a search has found, and where it ran. */
export interface IFound {
  readonly execution: IExecution;
  readonly owner: string;
  readonly session_name: string;
  /** Empty for the server's own user. */
  readonly token_name: string;
}

/** A whole execution; the outputs are nbformat 4. */
export interface IFinishedExecution extends IExecution {
  readonly stdout: string;
  readonly stderr: string;
  readonly outputs: readonly INotebookOutput[];
}

export type MimeBundle = ReadonlyPartialJSONObject;

export type INotebookOutput =
  | { readonly output_type: 'stream'; readonly name: 'stdout' | 'stderr'; readonly text: string | string[] }
  | { readonly output_type: 'display_data' | 'execute_result'; readonly data: MimeBundle }
  | {
      readonly output_type: 'error';
      readonly ename: string;
      readonly evalue: string;
      readonly traceback: readonly string[];
    };

/** One item of an execution's event log. */
export type OutputEvent = { readonly seq: number } & (
  | { readonly type: 'state'; readonly state: ExecutionState }
  | { readonly type: 'stream'; readonly name: 'stdout' | 'stderr'; readonly text: string }
  | {
      readonly type: 'display';
      readonly data: MimeBundle;
      readonly display_id: string | null;
      readonly update: boolean;
    }
  | { readonly type: 'result'; readonly data: MimeBundle }
  | { readonly type: 'clear'; readonly wait: boolean }
  | {
      readonly type: 'error';
      readonly name: string;
      readonly value: string;
      readonly traceback: string;
      /** Empty if it has no colours or is long; older servers do not send it. */
      readonly coloured_traceback?: string;
    }
  | { readonly type: 'input_request'; readonly prompt: string; readonly password: boolean }
  | { readonly type: 'session_state_lost'; readonly reason: string }
  | { readonly type: 'unresponsive'; readonly reason: string }
  | { readonly type: 'responsive' }
  | { readonly type: 'truncated'; readonly truncated: ITruncation }
  | { readonly type: 'files'; readonly files: readonly IFile[]; readonly omitted: number }
  | { readonly type: 'end'; readonly execution: IExecution }
  | { readonly type: 'failure'; readonly message: string }
);

export interface IToken {
  readonly id: string;
  readonly principal: string;
  readonly name: string;
  readonly policy: string;
  readonly scopes: readonly string[];
  /** Fields of the policy that the token narrows. */
  readonly limits: ReadonlyPartialJSONObject;
  readonly created_at: string;
  readonly expires_at: string;
  readonly created_by: string;
  readonly parent_id: string | null;
  readonly last_used_at: string | null;
  readonly revoked_at: string | null;
  readonly expired: boolean;
}

/** A running kernel that one token may attach to. */
export interface IGrant {
  readonly id: string;
  readonly token_id: string;
  readonly kernel_id: string;
  readonly kernel_name: string;
  readonly name: string;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly ended_at: string | null;
}

export interface IKernelSpecInfo {
  readonly name: string;
  readonly display_name: string;
  readonly language: string;
  readonly provisioner: string;
  readonly isolation: Isolation;
  readonly host_network?: boolean;
}

/** A policy; a field that is null sets no limit. */
export type IPolicy = { readonly name: string } & ReadonlyPartialJSONObject;

export interface IInfo {
  readonly version: string;
  readonly host: string;
  readonly host_version: string;
  readonly features: readonly string[];
  readonly caller: {
    readonly principal: string;
    readonly display_name: string;
    readonly scopes: readonly string[];
  };
  readonly limits: { readonly [name: string]: number };
  readonly policies: readonly IPolicy[];
  readonly unprotected_tokens: boolean;
  readonly trouble?: string | null;
  readonly default_kernel_name: string;
  readonly kernelspecs: readonly IKernelSpecInfo[];
}

/** One item of the change feed, `GET /events`. */
export type FeedEvent =
  | { readonly type: 'reset' }
  | { readonly type: 'session'; readonly session: ISession }
  | { readonly type: 'execution'; readonly execution: IExecution }
  | { readonly type: 'token'; readonly token: IToken }
  | { readonly type: 'grant'; readonly grant: IGrant }
  | { readonly type: 'checkpointed'; readonly checkpointed: ICheckpointEvent }
  | { readonly type: 'restored'; readonly restored: ICheckpointEvent }
  | { readonly type: 'branched'; readonly branched: ICheckpointEvent }
  | { readonly type: 'checkpoint_deleted'; readonly checkpoint_deleted: ICheckpointEvent };
