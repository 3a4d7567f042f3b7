/** Toolbar item of notebooks that names the tokens with which the kernel is shared. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { type ISessionContext, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { Widget } from '@lumino/widgets';

import { IExecModel } from '../tokens';

export const sharingPlugin: JupyterFrontEndPlugin<void> = {
  id: '@jupyter-exec-ext/labextension:sharing',
  description: 'Shows in the toolbar of a notebook with which agents its kernel is shared, and ends it.',
  autoStart: 'defer',
  requires: [IExecModel],
  optional: [IToolbarWidgetRegistry, ITranslator],
  activate: async (
    app,
    model: IExecModel,
    toolbars: IToolbarWidgetRegistry | null,
    translator: ITranslator | null
  ) => {
    const { SharingItem } = await import('../sharing');
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    // The schema of the panel's settings gives it its place.
    toolbars?.addFactory<Widget & { sessionContext: ISessionContext }>(
      'Notebook',
      'jex-sharing',
      panel => new SharingItem(model, app.commands, trans, panel.sessionContext)
    );
  }
};
