import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { approvalsPlugin } from './plugins/approvals';
import { modelPlugin } from './plugins/model';
import { panelPlugin } from './plugins/panel';
import { runningPlugin } from './plugins/running';
import { sharingPlugin } from './plugins/sharing';
import { statusPlugin } from './plugins/status';

export { IExecModel } from './tokens';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  modelPlugin,
  panelPlugin,
  runningPlugin,
  statusPlugin,
  approvalsPlugin,
  sharingPlugin
];
export default plugins;
