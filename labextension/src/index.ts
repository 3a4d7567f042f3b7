import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { approvalsPlugin } from './plugins/approvals';
import { modelPlugin } from './plugins/model';
import { panelPlugin } from './plugins/panel';
import { placesPlugin } from './plugins/places';
import { runningPlugin } from './plugins/running';
import { sharingPlugin } from './plugins/sharing';
import { statusPlugin } from './plugins/status';

export { IExecModel } from './tokens';

/** Plugins that start when the layout is restored: until then they would only delay JupyterLab. */
const deferred: JupyterFrontEndPlugin<unknown>[] = [
  modelPlugin,
  panelPlugin,
  runningPlugin,
  statusPlugin,
  approvalsPlugin,
  sharingPlugin
];

/** JupyterLab starts deferred plugins by itself; Notebook does not (7.6). */
const deferredPlugin: JupyterFrontEndPlugin<void> = {
  id: '@jupyter-exec-ext/labextension:deferred',
  description: "Starts the other plugins when the application's layout is restored.",
  autoStart: true,
  activate: app => {
    const enabled = deferred.filter(({ id }) => app.hasPlugin(id));
    void app.restored.then(() => Promise.all(enabled.map(({ id }) => app.activatePlugin(id))));
  }
};

const plugins: JupyterFrontEndPlugin<unknown>[] = [placesPlugin, deferredPlugin, ...deferred];
export default plugins;
