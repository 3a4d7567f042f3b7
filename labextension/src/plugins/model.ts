/** The model, for this extension and others. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { IExecModel } from '../tokens';

export const modelPlugin: JupyterFrontEndPlugin<IExecModel> = {
  id: '@jupyter-exec-ext/labextension:model',
  description: 'Keeps what agents run on this server up to date.',
  autoStart: 'defer',
  provides: IExecModel,
  activate: async app => {
    const { ExecClient, ExecModel } = await import('../model');
    // Nobody waits for what agents do while there is nothing on the screen yet.
    return new ExecModel(new ExecClient(app.serviceManager.serverSettings), app.restored);
  }
};
