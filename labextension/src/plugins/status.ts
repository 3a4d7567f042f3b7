/** The agents' item in the status bar. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IExecModel } from '../tokens';

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: '@jupyter-exec-ext/labextension:status',
  description: 'Shows in the status bar how many sessions agents have, and how many are busy.',
  autoStart: 'defer',
  requires: [IExecModel],
  optional: [IStatusBar, ITranslator],
  activate: async (app, model: IExecModel, statusBar: IStatusBar | null, translator: ITranslator | null) => {
    if (statusBar === null) {
      return;
    }
    const { createStatusItem } = await import('../status');
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    const { item, isActive } = createStatusItem(model, app.commands, trans);
    statusBar.registerStatusItem(statusPlugin.id, {
      item,
      align: 'left',
      rank: 100,
      isActive,
      activeStateChanged: model.changed
    });
  }
};
