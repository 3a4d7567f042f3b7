/** Command that copies a session's file to the person's folder. */

import { Notification } from '@jupyterlab/apputils';
import { copyIcon } from '@jupyterlab/ui-components';

import { messageOf } from '../api/errors';
import { oneLine } from '../safety/text';
import { FILE_ARGS, text } from './args';
import type { ICommandContext } from './context';
import { CommandIDs } from './ids';
import { downloadName } from './fileNames';

/** JupyterLab's file browser, as far as it is needed: the package that has its token would be one more to load. */
interface IFileBrowser {
  readonly model?: { readonly path: string; upload?(file: File): Promise<unknown> };
}

export function addCopyFileCommand(context: ICommandContext): void {
  const { commands, model, shell, trans, attempt } = context;

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

  function fileBrowser(): IFileBrowser['model'] {
    const sides = ['left', 'right', 'main'] as const;
    const found = sides.flatMap(side => [...shell.widgets(side)]);
    return (found.find(each => each.id === 'filebrowser') as IFileBrowser | undefined)?.model;
  }
}
