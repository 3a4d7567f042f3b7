import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

const plugin: JupyterFrontEndPlugin<void> = {
  id: '@jupyter-exec-ext/labextension:plugin',
  description: 'What agents run on this server.',
  autoStart: true,
  activate: () => undefined
};

export default [plugin];
