/** The clipboard, also where the page is not from a secure origin. */

import { Clipboard } from '@jupyterlab/apputils';

export async function copy(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
  } else {
    Clipboard.copyToSystem(text);
  }
}
