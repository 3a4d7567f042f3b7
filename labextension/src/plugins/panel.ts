/** The content of the side panel, its commands and settings. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import { IEditorLanguageRegistry } from '@jupyterlab/codemirror';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { Panel } from '@lumino/widgets';

import { CommandIDs, SESSION_MENU } from '../commands/ids';
import type { IServices } from '../panel/services';
import { IExecModel } from '../tokens';
import { IPanelPlace, IPanelServices, placesPlugin } from './places';

export const panelPlugin: JupyterFrontEndPlugin<IServices> = {
  id: '@jupyter-exec-ext/labextension:panel',
  description: 'A side panel with what agents run on this server, and commands for it.',
  autoStart: 'defer',
  requires: [IExecModel, IPanelPlace],
  provides: IPanelServices,
  optional: [
    ITranslator,
    ICommandPalette,
    ISettingRegistry,
    IEditorLanguageRegistry,
    IEditorServices,
    ILauncher
  ],
  activate: async (
    app: JupyterFrontEnd,
    model: IExecModel,
    place: Panel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null,
    languages: IEditorLanguageRegistry | null,
    editors: IEditorServices | null,
    launcher: ILauncher | null
  ) => {
    const [commandModules, panelModules] = await Promise.all([import('../commands'), import('../panel')]);
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    const { commands } = app;
    const settings = new panelModules.PanelSettings();
    registry?.load(placesPlugin.id).then(
      loaded => settings.use(loaded),
      (reason: unknown) => console.warn(`The settings of ${placesPlugin.id} could not be loaded.`, reason)
    );

    commandModules.addCommands({
      commands,
      model,
      trans,
      services: app.serviceManager,
      shell: app.shell,
      attempt: commandModules.attempt,
      currentKernelId: () => commandModules.kernelIdOf(app.shell.currentWidget),
      reveal: () => app.shell.activateById(place.id)
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
    panelModules.fillPanel(place, services, translator ?? nullTranslator);
    panelModules.showWaiting(place.title, model, trans);
    launcher?.add({ command: CommandIDs.open });
    return services;
  }
};
