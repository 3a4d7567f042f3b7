/** Texts about tokens. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { IPolicy, IToken } from '../api/types';
import { limitWords } from '../words';
import { oneLine } from '../safety/text';
import type { TokenState } from './tokenTree';

export const HOUR_SECONDS = 3600;
const DAY_SECONDS = 24 * HOUR_SECONDS;

/** How long a token may be good for. */
const LIFETIMES_SECONDS: readonly number[] = [
  HOUR_SECONDS,
  8 * HOUR_SECONDS,
  DAY_SECONDS,
  7 * DAY_SECONDS,
  30 * DAY_SECONDS
];

/** A day's work. */
const DEFAULT_LIFETIME_SECONDS = 8 * HOUR_SECONDS;

/** Return what to choose from, where the server allows so much; it has a say of its own if that is not known. */
export function lifetimesSeconds(most = Infinity): readonly number[] {
  const allowed = LIFETIMES_SECONDS.filter(each => each <= most);
  return allowed.length > 0 ? allowed : [most];
}

/** Return what of these is chosen for somebody who does not choose. */
export function usualLifetime(lifetimes: readonly number[]): number {
  return Math.min(DEFAULT_LIFETIME_SECONDS, Math.max(...lifetimes));
}

export function lifetimeWords(trans: TranslationBundle, seconds: number): string {
  if (seconds < HOUR_SECONDS) {
    return trans._n('1 minute', '%1 minutes', Math.floor(seconds / 60));
  }
  return seconds < DAY_SECONDS
    ? trans._n('1 hour', '%1 hours', Math.round(seconds / HOUR_SECONDS))
    : trans._n('1 day', '%1 days', Math.round(seconds / DAY_SECONDS));
}

export function tokenName(token: IToken): string {
  return oneLine(token.name) || token.id;
}

export function tokenStateWords(trans: TranslationBundle, state: TokenState): string {
  switch (state) {
    case 'active':
      return trans.__('active');
    case 'expired':
      return trans.__('expired');
    default:
      return trans.__('revoked');
  }
}

/** How long a token is good for yet, in one unit. */
export function leftWords(trans: TranslationBundle, expiresAt: string, now: number): string {
  const minutes = Math.max(0, (Date.parse(expiresAt) - now) / 60_000);
  if (minutes < 1) {
    return trans.__('less than a minute left');
  }
  if (minutes < 60) {
    return trans.__('%1 min left', Math.floor(minutes));
  }
  return minutes < 48 * 60
    ? trans.__('%1 h left', Math.floor(minutes / 60))
    : trans.__('%1 d left', Math.floor(minutes / (24 * 60)));
}

/** The limits of a policy that matter most when choosing one. */
export function policyWords(trans: TranslationBundle, policy: IPolicy): string {
  const words: string[] = [];
  const seconds = policy.max_execution_seconds;
  const sessions = policy.max_sessions;
  if (typeof policy.isolation === 'string' && policy.isolation !== 'none') {
    words.push(trans.__('isolation: %1', oneLine(policy.isolation, 40)));
  }
  if (Array.isArray(policy.network)) {
    words.push(trans._n('network: 1 rule', 'network: %1 rules', policy.network.length));
  }
  if (typeof sessions === 'number') {
    words.push(trans._n('1 session at once', '%1 sessions at once', sessions));
  }
  if (typeof seconds === 'number') {
    words.push(trans.__('at most %1 for each run', limitWords(trans, 'max_execution_seconds', seconds)));
  }
  if (policy.approval !== undefined && policy.approval !== 'never') {
    words.push(trans.__('asks you for approval'));
  }
  return words.length > 0 ? words.join(', ') : trans.__('no limits of its own');
}
