/** Texts for states, times and sizes. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type {
  ExecutionState,
  IExecution,
  IInfo,
  INetworkRequest,
  ISession,
  Isolation,
  IToken,
  SessionState
} from './api/types';
import type { Trouble } from './api/errors';
import { tokenId } from './model/view';
import { oneLine } from './safety/text';

/** State of a session or, where it stands still, the thing that it waits for. */
export function standingWords(trans: TranslationBundle, session: ISession): string {
  return session.waits_for === null
    ? sessionStateWords(trans, session.state)
    : waitWords(trans, session.waits_for);
}

function waitWords(trans: TranslationBundle, waitsFor: 'input' | 'approval'): string {
  return waitsFor === 'input' ? trans.__('waits for input') : trans.__('waits for approval');
}

/** How a session's last execution ended, unless it ended well or another one runs. */
export function lastOutcomeWords(trans: TranslationBundle, session: ISession): string | null {
  const [state, error] = (session.last_outcome ?? 'ok').split(/: (.*)/s);
  if (state === 'ok' || session.state === 'busy') {
    return null;
  }
  return error ? oneLine(error, 60) : executionStateWords(trans, state as ExecutionState);
}

export function isAskingInput(execution: IExecution, session: Pick<ISession, 'waits_for'>): boolean {
  return execution.state === 'running' && session.waits_for === 'input';
}

/** How an execution stands; an error by its name and the first line of its message. */
export function executionWords(
  trans: TranslationBundle,
  execution: IExecution,
  session: Pick<ISession, 'waits_for'>
): string {
  const { error } = execution;
  if (isAskingInput(execution, session)) {
    return waitWords(trans, 'input');
  }
  if (execution.state !== 'error' || error === null) {
    return executionStateWords(trans, execution.state);
  }
  const [first = ''] = error.value.trim().split('\n', 1);
  return oneLine(first === '' ? error.name : `${error.name}: ${first}`, 120);
}

/** A kind of code that a person can approve for a session. */
export function kindWords(trans: TranslationBundle, kind: string): string {
  const module = /^(?:new )?import (.*)$/s.exec(kind)?.[1];
  if (module !== undefined) {
    return trans.__('imports of %1', oneLine(module, 60));
  }
  switch (kind) {
    case 'shell':
      return trans.__('shell commands');
    case 'magics':
      return trans.__('magics');
    case 'pattern':
      return trans.__('code that matches the pattern of the policy');
    case 'always':
      return trans.__('everything');
    default:
      return oneLine(kind, 60);
  }
}

export function sessionStateWords(trans: TranslationBundle, state: SessionState): string {
  switch (state) {
    case 'starting':
      return trans.__('starting');
    case 'idle':
      return trans.__('idle');
    case 'busy':
      return trans.__('busy');
    case 'restarting':
      return trans.__('restarting');
    case 'ended':
      return trans.__('ended');
    default:
      return state;
  }
}

export function executionStateWords(trans: TranslationBundle, state: ExecutionState): string {
  switch (state) {
    case 'awaiting_approval':
      return waitWords(trans, 'approval');
    case 'queued':
      return trans.__('queued');
    case 'running':
      return trans.__('running');
    case 'ok':
      return trans.__('done');
    case 'error':
      return trans.__('error');
    case 'interrupted':
      return trans.__('interrupted');
    case 'timeout':
      return trans.__('timed out');
    case 'cancelled':
      return trans.__('cancelled');
    case 'rejected':
      return trans.__('rejected');
    case 'kernel_died':
      return trans.__('kernel died');
    case 'oom_killed':
      return trans.__('out of memory');
    case 'server_restarted':
      return trans.__('server restarted');
    case 'server_lost':
      return trans.__('server lost');
    case 'token_revoked':
      return trans.__('token revoked');
    default:
      return state;
  }
}

/** How an execution looks: one of few, by which it is coloured. */
export function tone(state: ExecutionState): 'waiting' | 'running' | 'good' | 'bad' | 'stopped' {
  switch (state) {
    case 'awaiting_approval':
    case 'queued':
      return 'waiting';
    case 'running':
      return 'running';
    case 'ok':
      return 'good';
    case 'interrupted':
    case 'cancelled':
    case 'rejected':
      return 'stopped';
    default:
      return 'bad';
  }
}

/** The host of a request, and the path where the proxy has read it. */
export function requestName(trans: TranslationBundle, request: INetworkRequest): string {
  const host = request.host.includes(':') ? `[${request.host}]` : request.host;
  const where = request.host === '' ? trans.__('unreadable request') : `${host}:${request.port}`;
  return oneLine(request.path === '' ? where : `${request.method} ${where}${request.path}`, 300);
}

/** What came of a request: by which rule and how many bytes, or why it did not get out. */
export function requestWords(trans: TranslationBundle, request: INetworkRequest): string {
  const reason = oneLine(request.reason, 300);
  switch (request.verdict) {
    case 'allowed':
      return trans.__(
        'allowed by %1; %2 sent, %3 received',
        oneLine(request.rule, 120),
        sizeWords(request.bytes_sent),
        sizeWords(request.bytes_received)
      );
    case 'refused':
      return trans.__('refused: %1', reason);
    default:
      return trans.__('failed: %1', reason);
  }
}

export function isolationWords(trans: TranslationBundle, isolation: Isolation): string {
  switch (isolation) {
    case 'none':
      return trans.__('not isolated');
    case 'landlock':
      return trans.__('Landlock');
    case 'sandbox':
      return trans.__('sandbox');
    case 'remote':
      return trans.__('remote');
    default:
      return isolation;
  }
}

export function isolationMeaning(trans: TranslationBundle, isolation: Isolation): string {
  switch (isolation) {
    case 'none':
      return trans.__('The code has all rights of the user who runs this server.');
    case 'landlock':
      return trans.__('The code reaches no file but its own, and no network.');
    case 'sandbox':
      return trans.__('The code sees nothing but its own files, and no network.');
    case 'remote':
      return trans.__('The code runs elsewhere.');
    default:
      return isolation;
  }
}

export function troubleWords(trans: TranslationBundle, trouble: Trouble): string {
  switch (trouble) {
    case 'no-extension':
      return trans.__('This server does not have the jupyter_exec_ext server extension, or it is disabled.');
    case 'too-old':
      return trans.__(
        "This server's jupyter_exec_ext is older than this panel. Restart the server, or update it."
      );
    case 'forbidden':
      return trans.__('The server refuses to show what agents run. You may have to log in again.');
    case 'policies':
      return trans.__('A policy has a mistake, so this server runs no code of agents.');
    default:
      return trans.__('There is no connection to the server. What you see may be out of date.');
  }
}

/** The name of a session for people. */
export function sessionName(session: ISession): string {
  return oneLine(session.name) || session.id;
}

export function ownerName(
  trans: TranslationBundle,
  principal: string,
  token: IToken | null,
  info: IInfo | null
): string {
  if (token !== null) {
    return oneLine(token.name);
  }
  const id = tokenId(principal);
  if (id !== null) {
    return trans.__('Token %1', oneLine(id, 40));
  }
  return principal === info?.caller.principal ? trans.__('You') : oneLine(principal);
}

/** How long an execution has run, in seconds; null if it has not begun. */
export function ranSeconds(execution: IExecution, now: number): number | null {
  if (execution.started_at === null) {
    return null;
  }
  const end = execution.finished_at === null ? now : Date.parse(execution.finished_at);
  return Math.max(0, (end - Date.parse(execution.started_at)) / 1000);
}

export function durationWords(trans: TranslationBundle, seconds: number): string {
  if (seconds < 0.0995) {
    return trans.__('%1 ms', Math.round(seconds * 1000));
  }
  if (seconds < 9.95) {
    return trans.__('%1 s', tenths(seconds));
  }
  if (seconds < 59.5) {
    return trans.__('%1 s', Math.round(seconds));
  }
  if (seconds < 3600) {
    return trans.__('%1 min %2 s', Math.floor(seconds / 60), Math.floor(seconds % 60));
  }
  return trans.__('%1 h %2 min', Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60));
}

/** How long ago, in one unit. */
export function ageWords(trans: TranslationBundle, iso: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (seconds < 60) {
    return trans.__('now');
  }
  if (seconds < 3600) {
    return trans.__('%1 min', Math.floor(seconds / 60));
  }
  if (seconds < 86400) {
    return trans.__('%1 h', Math.floor(seconds / 3600));
  }
  return trans.__('%1 d', Math.floor(seconds / 86400));
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

export function sizeWords(bytes: number): string {
  let size = bytes;
  let unit = 0;
  while (size >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 || size >= 99.5 ? Math.round(size) : tenths(size)} ${UNITS[unit]}`;
}

/** As the browser writes decimals, which dates follow, too. */
function tenths(value: number): string {
  return value.toLocaleString(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

/** A limit of the configuration; the end of its name says what it counts. */
export function limitWords(trans: TranslationBundle, name: string, value: number): string {
  if (name.endsWith('_bytes')) {
    return sizeWords(value);
  }
  if (!name.endsWith('_seconds')) {
    return value.toLocaleString();
  }
  if (value > 86_400 && value % 86_400 === 0) {
    return trans.__('%1 d', value / 86_400);
  }
  if (value > 0 && value % 60 === 0) {
    return value % 3600 === 0 ? trans.__('%1 h', value / 3600) : trans.__('%1 min', value / 60);
  }
  return trans.__('%1 s', value.toLocaleString());
}

const NOTHING_SAID = /^\s*(?:#|%|\/\/|$)/;
const IMPORT = /^\s*(?:import|from)\s/;
/** More lines are not looked at for one that says something. */
const MAX_HEAD_LINES = 200;

/** The first line of code that is no import, comment or magic; without one, the first of those. */
export function headline(code: string): string {
  const lines = code.split('\n', MAX_HEAD_LINES);
  let listing = false; // in the names of an import, between its parentheses
  const said = lines.find(line => {
    const skipped = listing || IMPORT.test(line);
    listing = skipped && !line.includes(')') && (listing || line.includes('('));
    return !skipped && !NOTHING_SAID.test(line);
  });
  return oneLine(said ?? lines.find(line => line.trim() !== '') ?? '', 160);
}

// Made once: making one takes longer than using it a thousand times.
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric', month: 'short' });
const DAY_OF_YEAR = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

/** The time of day, in this place's time zone. */
export function clockWords(iso: string): string {
  return CLOCK.format(Date.parse(iso));
}

/** The day, in this place's time zone. */
export function dayWords(trans: TranslationBundle, iso: string, now: number): string {
  const [date, today, yesterday] = [new Date(iso), new Date(now), new Date(now)];
  yesterday.setDate(today.getDate() - 1);
  switch (date.toDateString()) {
    case today.toDateString():
      return trans.__('Today');
    case yesterday.toDateString():
      return trans.__('Yesterday');
    default:
      return (date.getFullYear() === today.getFullYear() ? DAY : DAY_OF_YEAR).format(date);
  }
}
