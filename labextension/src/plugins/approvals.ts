/** Tells a person that code waits for approval or input, also while the panel is closed. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IExecModel } from '../tokens';

export const approvalsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@jupyter-exec-ext/labextension:approvals',
  description: "Notifies when agents' code waits for a person's approval or input.",
  autoStart: 'defer',
  requires: [IExecModel],
  optional: [ITranslator],
  activate: async (app, model: IExecModel, translator: ITranslator | null) => {
    const { notifyOfWaiting, addRejectCommand } = await import('../approvals');
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    addRejectCommand(app.commands, model, trans);
    notifyOfWaiting(model, app.commands, trans);
  }
};
