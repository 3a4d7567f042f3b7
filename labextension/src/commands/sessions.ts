/** Commands on a session. */

import { InputDialog, Notification } from '@jupyterlab/apputils';
import {
  closeIcon,
  consoleIcon,
  copyIcon,
  folderIcon,
  notebookIcon,
  refreshIcon,
  stopIcon,
  undoIcon
} from '@jupyterlab/ui-components';

import { ApiError, messageOf } from '../api/errors';
import type { ISession } from '../api/types';
import { isAlive } from '../model/view';
import { ownerName, sessionName } from '../words';
import { oneLine } from '../safety/text';
import { KIND_ARGS, OWNER_ARGS, SESSION_ARGS, text } from './args';
import { confirmed } from './confirmed';
import type { ICommandContext } from './context';
import { copy } from './copy';
import { fileDialog } from './fileDialog';
import { CommandIDs } from './ids';
import { notebookName, notebookPaths } from './fileNames';

/** Code that runs on for so long after an interrupt ignores it. */
const IGNORED_SECONDS = 5;
/** How long the offer to restart stands. */
const OFFER_SECONDS = 60;
/** Of a session's executions, the newest: what waits behind the one that runs is among them, too. */
const LOOKED_THROUGH = 50;

export function addSessionCommands(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;
  const known = (args: object): ISession | undefined =>
    model.state.sessions.get(String((args as { sessionId?: unknown }).sessionId));
  const owned = ({ owner }: { owner?: unknown }): ISession[] =>
    [...model.state.sessions.values()].filter(
      each => isAlive(each) && (owner === undefined || each.owner === owner)
    );
  const nameOf = (args: object): string => {
    const session = known(args);
    return session === undefined ? '' : oneLine(sessionName(session), 60);
  };
  const alive = (args: object): boolean => {
    const session = known(args);
    return session !== undefined && isAlive(session);
  };

  commands.addCommand(CommandIDs.interrupt, {
    label: trans.__('Interrupt'),
    icon: stopIcon,
    describedBy: SESSION_ARGS,
    isEnabled: alive,
    execute: async args => {
      const session = known(args);
      await (session && interrupt(context, session));
    }
  });

  commands.addCommand(CommandIDs.interruptAll, {
    label: trans.__("Interrupt All of the Agents' Code"),
    icon: stopIcon,
    describedBy: OWNER_ARGS,
    isEnabled: args => owned(args).some(isBusy),
    execute: args =>
      Promise.all(
        owned(args)
          .filter(isBusy)
          .map(each => interrupt(context, each))
      )
  });
  let anyBusy = false;
  model.changed.connect(() => {
    if (anyBusy !== owned({}).some(isBusy)) {
      anyBusy = !anyBusy;
      commands.notifyCommandChanged(CommandIDs.interruptAll);
    }
  });

  commands.addCommand(CommandIDs.shutdownAll, {
    label: trans.__("Shut Down All of the Agents' Sessions…"),
    icon: closeIcon,
    describedBy: OWNER_ARGS,
    isEnabled: args => owned(args).length > 0,
    execute: async args => {
      const sessions = owned(args);
      const { info, tokens } = model.state;
      const { owner } = args;
      const title =
        typeof owner === 'string'
          ? trans._n(
              'Shut down the session of “%2”?',
              'Shut down all %1 sessions of “%2”?',
              sessions.length,
              ownerName(trans, owner, tokens.get(owner) ?? null, info)
            )
          : trans._n('Shut down 1 agent session?', 'Shut down all %1 agent sessions?', sessions.length);
      const body = trans.__('Their code is stopped, and their variables are lost. Files and runs are kept.');
      if (await confirmed(title, body, trans.__('Shut Down All'))) {
        await attempt(Promise.all(sessions.map(each => model.client.shutdown(each.id))));
      }
    }
  });

  commands.addCommand(CommandIDs.restart, {
    label: trans.__('Restart Kernel…'),
    icon: refreshIcon,
    describedBy: SESSION_ARGS,
    isEnabled: args => alive(args) && known(args)?.attached !== true,
    execute: async args => {
      const body = trans.__('Its variables are lost. Running and queued code is cancelled.');
      const title = trans.__('Restart the kernel of “%1”?', nameOf(args));
      if (await confirmed(title, body, trans.__('Restart'))) {
        await attempt(model.client.restart(text(args, 'sessionId')));
      }
    }
  });

  commands.addCommand(CommandIDs.shutdown, {
    label: args => (known(args)?.attached ? trans.__('Detach…') : trans.__('Shut Down…')),
    icon: closeIcon,
    describedBy: SESSION_ARGS,
    isEnabled: alive,
    execute: async args => {
      const attached = known(args)?.attached === true;
      const title = attached
        ? trans.__('Detach “%1” from its kernel?', nameOf(args))
        : trans.__('Shut down “%1”?', nameOf(args));
      const body = attached
        ? trans.__('The agent can no longer run code in it. The kernel stays.')
        : trans.__('The agent can no longer use it. Its files and runs are kept.');
      if (await confirmed(title, body, attached ? trans.__('Detach') : trans.__('Shut Down'))) {
        await attempt(model.client.shutdown(text(args, 'sessionId')));
      }
    }
  });

  commands.addCommand(CommandIDs.openConsole, {
    label: trans.__('Open Console'),
    icon: consoleIcon,
    describedBy: SESSION_ARGS,
    isEnabled: args => alive(args) && known(args)?.kernel_id !== null,
    isVisible: () => commands.hasCommand('console:create'),
    execute: async args => {
      const session = known(args);
      if (session?.kernel_id) {
        await commands.execute('console:create', {
          kernelPreference: { id: session.kernel_id, shutdownOnDispose: false },
          name: sessionName(session)
        });
      }
    }
  });

  commands.addCommand(CommandIDs.openNotebook, {
    label: trans.__('Open as Notebook…'),
    icon: notebookIcon,
    describedBy: SESSION_ARGS,
    execute: async args => {
      const sessionId = text(args, 'sessionId');
      const kernelId = alive(args) ? (known(args)?.kernel_id ?? null) : null;
      const wish = await InputDialog.getText({
        title: trans.__('Save the session as a notebook'),
        label: trans.__('Path on this server'),
        text: notebookName(known(args)?.name ?? '', sessionId),
        okLabel: trans.__('Save and Open'),
        checkbox:
          kernelId === null
            ? null
            : {
                label: trans.__("Use the session's kernel"),
                caption: trans.__(
                  "With the session's variables: what you run there changes them. Without it, a new kernel is started."
                )
              }
      });
      if (wish.button.accept && wish.value) {
        const path = await attempt(save(context, sessionId, wish.value));
        const kernel = wish.isChecked && kernelId !== null ? { kernel: { id: kernelId } } : {};
        await (path && commands.execute('docmanager:open', { path, ...kernel }));
      }
    }
  });

  commands.addCommand(CommandIDs.copySession, {
    label: trans.__('Copy as Code'),
    icon: copyIcon,
    describedBy: SESSION_ARGS,
    execute: async args => {
      const notebook = await attempt(model.client.notebook(text(args, 'sessionId')));
      if (notebook !== undefined) {
        const cells = notebook.cells.filter(cell => cell.cell_type === 'code');
        const sources = cells.map(cell =>
          typeof cell.source === 'string' ? cell.source : cell.source.join('')
        );
        await copy(sources.join('\n\n') + '\n');
        Notification.info(
          trans._n('The code of one cell was copied.', 'The code of %1 cells was copied.', cells.length),
          {
            autoClose: 3000
          }
        );
      }
    }
  });

  commands.addCommand(CommandIDs.showFiles, {
    label: trans.__('Files…'),
    icon: folderIcon,
    describedBy: SESSION_ARGS,
    isEnabled: args => known(args)?.attached !== true,
    execute: async args => {
      const sessionId = text(args, 'sessionId');
      const list = await attempt(model.client.files(sessionId));
      await (list && fileDialog(context, sessionId, list));
    }
  });

  commands.addCommand(CommandIDs.askAgain, {
    label: trans.__('Ask Again About Approved Code'),
    caption: trans.__('Code of the kinds that you approved for this session waits for you again'),
    icon: undoIcon,
    describedBy: KIND_ARGS,
    isVisible: args => alive(args) && (known(args)?.approved_kinds.length ?? 0) > 0,
    execute: args =>
      attempt(model.client.askAgain(text(args, 'sessionId'), 'kind' in args ? text(args, 'kind') : undefined))
  });
}

function isBusy(session: ISession): boolean {
  return session.state === 'busy';
}

/** Interrupt; if the same code still runs some seconds later, offer to restart the kernel. */
async function interrupt(context: ICommandContext, session: ISession): Promise<void> {
  const { commands, model, trans, attempt } = context;
  const [listed] =
    (await attempt(
      Promise.all([model.client.executions(session.id, LOOKED_THROUGH), model.client.interrupt(session.id)])
    )) ?? [];
  const running = listed?.find(each => each.state === 'running');
  if (running === undefined || session.attached) {
    return; // a person's kernel is not ours to restart
  }
  window.setTimeout(() => {
    model.client.execution(running.id).then(
      ({ state }) => {
        if (state === 'running') {
          const restart = { sessionId: session.id };
          Notification.warning(
            trans.__('“%1” still runs: its code ignores the interrupt.', sessionName(session)),
            {
              autoClose: OFFER_SECONDS * 1000,
              actions: [
                {
                  label: trans.__('Restart Kernel…'),
                  callback: () => void commands.execute(CommandIDs.restart, restart)
                }
              ]
            }
          );
        }
      },
      (reason: unknown) => console.debug('Whether an interrupt was ignored cannot be found out.', reason)
    );
  }, IGNORED_SECONDS * 1000);
}

/** Save under the first name that is free. */
async function save(context: ICommandContext, sessionId: string, wish: string): Promise<string> {
  let refused: unknown;
  for (const path of notebookPaths(wish)) {
    try {
      return await context.model.client.saveNotebook(sessionId, path);
    } catch (error) {
      if (!(error instanceof ApiError && error.code === 'conflict' && messageOf(error).includes('already'))) {
        throw error;
      }
      refused = error;
    }
  }
  throw refused;
}
