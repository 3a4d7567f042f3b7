/** Early plugin: places of the panel and of views, and names of kernels, which the layout needs to be restored. */

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { type MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';
import { BoxPanel, type Panel } from '@lumino/widgets';

import { NO_ARGS, SESSION_ARGS, text } from '../commands/args';
import { CommandIDs } from '../commands/ids';
import { botIcon } from '../icons';
import { nameIsolatedKernels } from '../kernelNames';
import type { IServices } from '../panel/services';

/** Of JupyterLab's own panels, the file browser has 100 and the running sessions 200. */
const RANK = 250;

/** In the place of a session's id, for the view of all of them. */
export const ALL = 'all';
export const VIEW_PREFIX = 'jupyter-exec-ext-view-';

/** The empty side panel. */
export const IPanelPlace = new Token<Panel>('@jupyter-exec-ext/labextension:IPanelPlace');

/** Services of the panel and of views; asking for them loads them. */
export const IPanelServices = new Token<IServices>('@jupyter-exec-ext/labextension:IPanelServices');

export const placesPlugin: JupyterFrontEndPlugin<Panel> = {
  id: '@jupyter-exec-ext/labextension:plugin',
  description: "Keeps the places of the panel with agents' sessions, and of views of them, in the layout.",
  autoStart: true,
  provides: IPanelPlace,
  optional: [ITranslator, ILayoutRestorer],
  activate: (app, translator: ITranslator | null, restorer: ILayoutRestorer | null) => {
    const trans = (translator ?? nullTranslator).load('jupyter_exec_ext');
    nameIsolatedKernels(app.serviceManager.kernelspecs, trans);
    const place = new BoxPanel();
    place.id = 'jupyter-exec-ext-panel';
    place.title.icon = botIcon;
    place.title.caption = trans.__("Agents' sessions");
    place.node.setAttribute('role', 'region');
    place.node.setAttribute('aria-label', trans.__("Agents' sessions"));
    restorer?.add(place, place.id);
    app.shell.add(place, 'left', { rank: RANK, type: "Agents' sessions" });
    addViewCommands(app, trans, restorer);
    return place;
  }
};

/** Add the commands that open views; JupyterLab opens those of the last time with them, before the panel is there. */
function addViewCommands(
  app: JupyterFrontEnd,
  trans: TranslationBundle,
  restorer: ILayoutRestorer | null
): void {
  const { commands, shell } = app;
  const tracker = new WidgetTracker<MainAreaWidget>({ namespace: 'jupyter-exec-ext-views' });

  const open = async (sessionId: string): Promise<void> => {
    const [{ createView, viewId }, services] = await Promise.all([
      import('../view'),
      app.resolveRequiredService(IPanelServices)
    ]);
    const view =
      tracker.find(each => each.id === viewId(sessionId)) ?? added(createView(services, sessionId));
    shell.activateById(view.id);
  };
  const added = (view: MainAreaWidget): MainAreaWidget => {
    shell.add(view, 'main');
    void tracker.add(view);
    return view;
  };
  // A page of Notebook 7 has one document, and no place for it.
  const isVisible = (): boolean => app.name !== 'Jupyter Notebook';

  commands.addCommand(CommandIDs.openView, {
    label: trans.__('Open in Main Area'),
    caption: trans.__('What the session uses, what ran when, and its files'),
    icon: botIcon,
    describedBy: SESSION_ARGS,
    isVisible,
    execute: args => open(text(args, 'sessionId'))
  });
  commands.addCommand(CommandIDs.openAllView, {
    label: trans.__("Open Agents' Sessions in Main Area"),
    icon: botIcon,
    describedBy: NO_ARGS,
    isVisible,
    execute: () => open(ALL)
  });

  void restorer?.restore(tracker, {
    command: CommandIDs.openView,
    args: view => ({ sessionId: view.id.replace(VIEW_PREFIX, '') }),
    name: view => view.id
  });
}
