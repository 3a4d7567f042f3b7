/** Choices in the form for a new token: the code that a person must approve. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

export type Ask = 'never' | 'shell' | 'new-imports' | 'always';

export const ASKS: readonly Ask[] = ['never', 'shell', 'new-imports', 'always'];

/** Return the limits of a token that asks; the server has both hold, its policy's rule and this one. */
export function askLimits(ask: Ask): ReadonlyPartialJSONObject {
  switch (ask) {
    case 'shell':
      return { approval: { when: ['shell', 'magics'] } };
    case 'new-imports':
      return { approval: { when: ['new_imports'] } };
    case 'always':
      return { approval: 'always' };
    default:
      return {};
  }
}

export function askWords(trans: TranslationBundle, ask: Ask): string {
  switch (ask) {
    case 'shell':
      return trans.__('about shell commands and magics');
    case 'new-imports':
      return trans.__('about new imports');
    case 'always':
      return trans.__('always');
    default:
      return trans.__('never');
  }
}
