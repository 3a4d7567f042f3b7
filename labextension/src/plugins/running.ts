/** Plugin that adds agents' sessions to the panel of running terminals and kernels, which Notebook 7 has, too. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { CommandIDs } from '../commands/ids';
import { IExecModel } from '../tokens';

export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: '@jupyter-exec-ext/labextension:running',
  description: "Adds agents' sessions to the panel of running terminals and kernels.",
  autoStart: 'defer',
  requires: [IExecModel],
  optional: [IRunningSessionManagers, ITranslator],
  activate: async (
    app,
    model: IExecModel,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ) => {
    if (managers === null) {
      return;
    }
    const { RunningAgents } = await import('../running');
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    // Core shows what there is when the section is added, and hears of changes only while it is visible.
    const add = (): void => {
      if (model.state.info !== null) {
        model.changed.disconnect(add);
        managers.add(new RunningAgents(model, app.commands, trans));
      }
    };
    model.changed.connect(add);
    add();
    // Core opens each server session as a file; there is none for an agent's.
    app.commands.commandExecuted.connect((_, { id, args }) => {
      if (id === 'running:kernel-open-session' && args['type'] === 'exec') {
        const { path } = args;
        const sessionId = typeof path === 'string' ? path.replace(/^exec:/, '') : '';
        void app.commands.execute(CommandIDs.showSession, { sessionId });
      }
    });
  }
};
