/** Limits of the server and of policies in words: pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { Isolation } from '../api/types';
import { ruleWords } from '../approvals/approvalWords';
import { oneLine } from '../safety/text';
import { isolationWords, limitWords } from '../words';

/** The name of a limit; one of a newer server keeps that of the configuration. */
export function limitName(trans: TranslationBundle, name: string): string {
  switch (name) {
    case 'approval':
      return trans.__('Code that needs approval');
    case 'attach':
      return trans.__('Attach to running kernels');
    case 'default_timeout_seconds':
      return trans.__('Usual run time limit');
    case 'env':
      return trans.__('Environment variables');
    case 'isolation':
      return trans.__('Least isolation');
    case 'kernelspecs':
      return trans.__('Kernels');
    case 'max_checkpoint_memory_bytes':
      return trans.__('Memory of sessions with checkpoints');
    case 'max_checkpoints':
      return trans.__('Checkpoints at once');
    case 'max_code_bytes':
      return trans.__('Code of a run');
    case 'max_cpu_seconds':
      return trans.__('Processor time of a process');
    case 'max_execution_seconds':
    case 'max_timeout_seconds':
      return trans.__('Run time');
    case 'max_executions_per_minute':
      return trans.__('Runs per minute');
    case 'max_file_bytes':
      return trans.__('Uploaded file');
    case 'max_idle_seconds':
    case 'session_idle_timeout_seconds':
      return trans.__('Idle time of a session');
    case 'max_memory_bytes':
      return trans.__('Memory of a process');
    case 'max_open_executions':
      return trans.__('Runs at once, queued ones included');
    case 'max_output_bytes':
      return trans.__('Output of a run');
    case 'max_ports':
      return trans.__('Open ports of a session');
    case 'max_queue_seconds':
      return trans.__('Time in the queue');
    case 'max_queued_executions':
      return trans.__('Queued runs of a session');
    case 'max_session_bytes':
      return trans.__('Files of a session');
    case 'max_session_files':
      return trans.__('Number of files of a session');
    case 'max_session_seconds':
      return trans.__('Lifetime of a session');
    case 'max_sessions':
      return trans.__('Sessions at once');
    case 'max_stored_bytes':
      return trans.__('Stored records and output');
    case 'max_streams':
      return trans.__('Open responses at once');
    case 'max_token_seconds':
      return trans.__('Lifetime of a token');
    case 'network':
      return trans.__('Network');
    case 'secrets':
      return trans.__('Secrets that the code uses and cannot read');
    case 'mounts':
      return trans.__('Shared directories, read-only');
    case 'devices':
      return trans.__('Devices');
    case 'packages':
      return trans.__('Packages of a session');
    case 'max_upload_bytes':
      return trans.__('Data sent to the network');
    case 'unseen_uploads':
      return trans.__('Uploads without approval');
    case 'allow_comms':
      return trans.__('Comms, as widgets use them');
    case 'approve_in_client':
      return trans.__('Approval in an MCP client');
    default:
      return oneLine(name, 80);
  }
}

/** The value of a limit; `none` is the one that sets no limit. */
export function limitValue(trans: TranslationBundle, name: string, value: unknown, none: unknown): string {
  if (name === 'network' || name === 'mounts') {
    return name === 'network' ? networkWords(trans, value) : mountWords(trans, value);
  }
  if (name === 'packages') {
    return value === 'install' ? trans.__('may be installed') : trans.__('none');
  }
  if ((name === 'max_ports' || name === 'max_checkpoints') && value === 0) {
    return trans.__('none'); // also where 0 is no limit for all others
  }
  if (value === none) {
    return trans.__('no limit');
  }
  switch (typeof value) {
    case 'number':
      return limitWords(trans, name, value);
    case 'boolean':
      return value ? trans.__('allowed') : trans.__('not allowed');
    case 'string':
      if (name === 'isolation') {
        return isolationWords(trans, value as Isolation);
      }
      return value === 'never' ? trans.__('none') : oneLine(value);
    default:
      break;
  }
  if (name === 'approval') {
    return ruleWords(trans, value);
  }
  if (!Array.isArray(value)) {
    return oneLine(JSON.stringify(value));
  }
  return value.length === 0
    ? trans.__('none')
    : value.includes('*')
      ? trans.__('all')
      : oneLine(value.join(', '));
}

/** What a policy lets kernels reach; without a value, that depends on their isolation. */
function networkWords(trans: TranslationBundle, value: unknown): string {
  if (Array.isArray(value) && value.length > 0) {
    return oneLine(value.join(', '));
  }
  if (value === 'host') {
    return trans.__('network of this machine');
  }
  return value === null ? trans.__('none for isolated kernels') : trans.__('none');
}

/** Directories with the paths at which kernels see them. */
function mountWords(trans: TranslationBundle, value: unknown): string {
  const mounts = Object.entries((value ?? {}) as { [inside: string]: unknown });
  return mounts.length === 0
    ? trans.__('none')
    : oneLine(mounts.map(([inside, outside]) => trans.__('%1 from %2', inside, String(outside))).join(', '));
}
