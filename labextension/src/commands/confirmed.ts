/** Questions before something that cannot be undone. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import type * as React from 'react';

/** Ask, and return whether the person agrees; `label` says to what. */
export async function confirmed(
  title: string,
  body: string | React.ReactElement<unknown>,
  label: string
): Promise<boolean> {
  const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label })];
  return (await showDialog({ title, body, buttons })).button.accept;
}
