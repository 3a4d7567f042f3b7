/** The side panel, its commands and settings. */

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import { IEditorLanguageRegistry } from '@jupyterlab/codemirror';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { CommandIDs, SESSION_MENU } from '../commands/ids';
import { IExecModel } from '../tokens';

const ID = '@jupyter-exec-ext/labextension:plugin';

/** Of JupyterLab's own panels, the file browser has 100 and the running sessions 200. */
const RANK = 250;

export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'A side panel with what agents run on this server, and commands for it.',
  autoStart: true,
  requires: [IExecModel],
  optional: [
    ITranslator,
    ICommandPalette,
    ILayoutRestorer,
    ISettingRegistry,
    IEditorLanguageRegistry,
    IEditorServices,
    ILauncher
  ],
  activate: async (
    app: JupyterFrontEnd,
    model: IExecModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    languages: IEditorLanguageRegistry | null,
    editors: IEditorServices | null,
    launcher: ILauncher | null
  ) => {
    const [commandModules, panelModules, { addViewCommands }] = await Promise.all([
      import('../commands'),
      import('../panel'),
      import('./view')
    ]);
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    const { commands } = app;
    const settings = new panelModules.PanelSettings();
    registry?.load(ID).then(
      loaded => settings.use(loaded),
      (reason: unknown) => console.warn(`The settings of ${ID} could not be loaded.`, reason)
    );

    commandModules.addCommands({
      commands,
      model,
      trans,
      services: app.serviceManager,
      attempt: commandModules.attempt,
      currentKernelId: () => commandModules.kernelIdOf(app.shell.currentWidget),
      reveal: () => app.shell.activateById(panelModules.PANEL_ID)
    });
    for (const command of [
      CommandIDs.open,
      CommandIDs.openAllView,
      CommandIDs.attach,
      CommandIDs.stopSharing,
      CommandIDs.newToken,
      CommandIDs.interruptAll,
      CommandIDs.shutdownAll,
      CommandIDs.reconnect,
      CommandIDs.help
    ]) {
      palette?.addItem({ command, category: trans.__('Agents') });
    }

    const services = {
      model,
      commands,
      trans,
      settings,
      languages,
      editors,
      renderers: panelModules.strictRenderers(),
      openMenu: panelModules.menuOpener(commands, SESSION_MENU)
    };
    addViewCommands(app, services, restorer);
    const panel = panelModules.createPanel(services, translator ?? nullTranslator);
    panelModules.showWaiting(panel.title, model, trans);
    restorer?.add(panel, panel.id);
    app.shell.add(panel, 'left', { rank: RANK, type: "Agents' sessions" });
    launcher?.add({ command: CommandIDs.open });
  }
};
