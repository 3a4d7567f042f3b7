/** Commands on the whole: show the panel, attach a notebook's kernel, connect again. */

import { InputDialog, Notification } from '@jupyterlab/apputils';
import { linkIcon, refreshIcon } from '@jupyterlab/ui-components';

import { botIcon } from '../icons';
import { oneLine } from '../safety/text';
import { NO_ARGS } from './args';
import type { ICommandContext } from './context';
import { CommandIDs } from './ids';

export function addGeneralCommands(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;

  commands.addCommand(CommandIDs.open, {
    label: trans.__("Show Agents' Sessions"),
    icon: botIcon,
    describedBy: NO_ARGS,
    execute: () => context.reveal()
  });

  commands.addCommand(CommandIDs.reconnect, {
    label: trans.__("Connect to Agents' Sessions Again"),
    icon: refreshIcon,
    describedBy: NO_ARGS,
    execute: () => model.retry()
  });

  commands.addCommand(CommandIDs.attach, {
    label: trans.__('Share a Kernel with Agents…'),
    caption: trans.__('Agents run code in it too, with its variables. It stays yours.'),
    icon: linkIcon,
    describedBy: NO_ARGS,
    execute: async () => {
      const choices = await attempt(kernels(context));
      if (choices === undefined) {
        return;
      }
      if (choices.length === 0) {
        Notification.info(trans.__('No notebook or console has a kernel that runs.'), { autoClose: 5000 });
        return;
      }
      const current = choices.findIndex(choice => choice.kernelId === context.currentKernelId());
      const wish = await InputDialog.getItem({
        title: trans.__('Share a kernel with agents'),
        label: trans.__(
          'Agents with access to this server run code in it, with all of its variables and rights.'
        ),
        items: choices.map(choice => choice.label),
        current: Math.max(0, current),
        okLabel: trans.__('Share')
      });
      const chosen = choices.find(choice => choice.label === wish.value);
      if (wish.button.accept && chosen !== undefined) {
        const session = await attempt(model.client.attach(chosen.kernelId, chosen.name));
        if (session !== undefined) {
          context.reveal();
        }
      }
    }
  });
}

interface IChoice {
  readonly kernelId: string;
  readonly name: string;
  readonly label: string;
}

/** Kernels that people use: those of notebooks and consoles. */
async function kernels(context: ICommandContext): Promise<IChoice[]> {
  const { sessions } = context.services;
  await sessions.refreshRunning();
  const choices = new Map<string, IChoice>();
  for (const each of sessions.running()) {
    if (each.kernel && !choices.has(each.kernel.id)) {
      const name = oneLine(each.name || each.path, 100);
      const label = `${name} (${oneLine(each.kernel.name, 60)}, ${each.kernel.id.slice(0, 8)})`;
      choices.set(each.kernel.id, { kernelId: each.kernel.id, name, label });
    }
  }
  return [...choices.values()];
}
