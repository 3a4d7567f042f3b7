/** Scopes of tokens, in words and in sets that go together: pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

/** Scopes of an agent that runs code in sessions of its own, with files; as `jupyter exec token create` has them. */
export const USUAL: readonly string[] = [
  'sessions:create',
  'sessions:read',
  'sessions:delete',
  'executions:create',
  'executions:read',
  'executions:control',
  'files:read',
  'files:write'
];

/** In which order they are offered; what a newer server has besides comes last. */
const ORDER: readonly string[] = [
  ...USUAL,
  'sessions:checkpoint',
  'kernels:attach',
  'ports:use',
  'tokens:create',
  'pool:read'
];

export function ordered(scopes: readonly string[]): readonly string[] {
  const rank = (scope: string): number => (ORDER.includes(scope) ? ORDER.indexOf(scope) : ORDER.length);
  return [...scopes].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

export function scopeWords(trans: TranslationBundle, scope: string): string {
  switch (scope) {
    case 'sessions:create':
      return trans.__('start sessions with kernels of their own');
    case 'sessions:read':
      return trans.__('list and read its sessions');
    case 'sessions:delete':
      return trans.__('shut its sessions down');
    case 'sessions:checkpoint':
      return trans.__('make checkpoints of its sessions, restore and branch them');
    case 'kernels:attach':
      return trans.__('run code in kernels that run already, such as a notebook’s');
    case 'executions:create':
      return trans.__('run code');
    case 'executions:read':
      return trans.__('read what its code has put out');
    case 'executions:control':
      return trans.__('interrupt, restart, cancel, answer input()');
    case 'files:read':
      return trans.__('list and download files of its sessions');
    case 'files:write':
      return trans.__('upload and delete files of its sessions; a kernel can run them, without approval');
    case 'ports:use':
      return trans.__('open ports of its programs, and use them');
    case 'tokens:create':
      return trans.__('create tokens that may do no more than itself, and revoke them');
    case 'pool:read':
      return trans.__('read how loaded the server is, as a pool of servers does');
    default:
      return scope;
  }
}
