/** Commands that open views in the main area, which are loaded when the first one opens. */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { type MainAreaWidget, Notification, WidgetTracker } from '@jupyterlab/apputils';
import { copyIcon } from '@jupyterlab/ui-components';

import { messageOf } from '../api/errors';
import { FILE_ARGS, NO_ARGS, SESSION_ARGS, text } from '../commands/args';
import { attempt } from '../commands/context';
import { CommandIDs } from '../commands/ids';
import { downloadName } from '../commands/names';
import { botIcon } from '../icons';
import type { IServices } from '../panel/services';
import { oneLine } from '../safety/text';

/** In the place of a session's id, for the view of all of them. */
export const ALL = 'all';
export const VIEW_PREFIX = 'jupyter-exec-ext-view-';

/** JupyterLab's file browser, as far as it is needed: the package that has its token would be one more to load. */
interface IFileBrowser {
  readonly model?: { readonly path: string; upload?(file: File): Promise<unknown> };
}

export function addViewCommands(
  app: JupyterFrontEnd,
  services: IServices,
  restorer: ILayoutRestorer | null
): void {
  const { commands, shell } = app;
  const { model, trans } = services;
  const tracker = new WidgetTracker<MainAreaWidget>({ namespace: 'jupyter-exec-ext-views' });

  const open = async (sessionId: string): Promise<void> => {
    const { createView, viewId } = await import('../view');
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

  commands.addCommand(CommandIDs.copyFile, {
    label: trans.__('Copy File to My Folder'),
    caption: trans.__('Into the folder that the file browser shows'),
    icon: copyIcon,
    describedBy: FILE_ARGS,
    isVisible: () => fileBrowser() !== undefined,
    execute: async args => {
      const browser = fileBrowser();
      const path = text(args, 'path');
      const content = await attempt(model.client.file(text(args, 'sessionId'), path));
      if (browser?.upload === undefined || content === undefined) {
        return;
      }
      try {
        // It asks before it overwrites anything.
        await browser.upload(new File([content], downloadName(path)));
      } catch (reason) {
        // Text says that the person has said no.
        if (typeof reason !== 'string') {
          Notification.error(oneLine(messageOf(reason), 500), { autoClose: 10_000 });
        }
        return;
      }
      const folder = browser.path || '/';
      Notification.success(trans.__('%1 was copied to %2.', oneLine(downloadName(path)), oneLine(folder)), {
        autoClose: 4000
      });
    }
  });

  void restorer?.restore(tracker, {
    command: CommandIDs.openView,
    args: view => ({ sessionId: view.id.replace(VIEW_PREFIX, '') }),
    name: view => view.id
  });

  function fileBrowser(): IFileBrowser['model'] {
    const sides = ['left', 'right', 'main'] as const;
    const found = sides.flatMap(side => [...shell.widgets(side)]);
    return (found.find(each => each.id === 'filebrowser') as IFileBrowser | undefined)?.model;
  }
}
