/** General commands: show the panel, share a notebook's kernel, connect again. */

import { Notification } from '@jupyterlab/apputils';
import { closeIcon, infoIcon, linkIcon, refreshIcon } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { revokeGrant } from '../access/calls';
import { askToShare, type IKernelChoice, share, showShared } from '../access/share';
import { botIcon } from '../icons';
import { type ISharing, isShared, sharing } from '../model/sharing';
import { oneLine } from '../safety/text';
import { KERNEL_ARGS, NO_ARGS, text } from './args';
import type { ICommandContext } from './context';
import { showHelp } from './help';
import { CommandIDs } from './ids';

export function addGeneralCommands(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;

  commands.addCommand(CommandIDs.open, {
    label: trans.__("Agents' Sessions"),
    icon: botIcon,
    describedBy: NO_ARGS,
    execute: () => context.reveal()
  });

  commands.addCommand(CommandIDs.help, {
    label: trans.__("Help on Agents' Sessions"),
    icon: infoIcon,
    describedBy: NO_ARGS,
    execute: () => showHelp(trans)
  });

  commands.addCommand(CommandIDs.reconnect, {
    label: trans.__("Connect to Agents' Sessions Again"),
    icon: refreshIcon,
    describedBy: NO_ARGS,
    execute: () => model.retry()
  });

  commands.addCommand(CommandIDs.attach, {
    label: trans.__('Share a Kernel with an Agent…'),
    caption: trans.__('One token may run code in it, with its variables, until you end it. It stays yours.'),
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
      const wish = await askToShare(trans, model.state, choices, context.currentKernelId());
      const shared = wish && (await attempt(share(model, wish)));
      if (shared) {
        await showShared(trans, shared, model.client.settings.baseUrl);
      }
    }
  });

  const sharedBy = (args: ReadonlyPartialJSONObject): ISharing =>
    sharing(model.state, 'kernelId' in args ? text(args, 'kernelId') : context.currentKernelId());
  commands.addCommand(CommandIDs.stopSharing, {
    label: trans.__('Stop Sharing This Kernel'),
    icon: closeIcon,
    describedBy: KERNEL_ARGS,
    isEnabled: args => isShared(sharedBy(args)),
    execute: async args => {
      const shared = sharedBy(args);
      const ends = shared.grants.map(grant => revokeGrant(model.client, grant.id));
      // Those of a grant end with it.
      for (const session of shared.sessions.filter(each => each.grant_id === null)) {
        ends.push(model.client.shutdown(session.id));
      }
      await attempt(Promise.all(ends));
    }
  });
}

/** Kernels that people use: those of notebooks and consoles. */
async function kernels(context: ICommandContext): Promise<IKernelChoice[]> {
  const { sessions } = context.services;
  await sessions.refreshRunning();
  const choices = new Map<string, IKernelChoice>();
  for (const each of sessions.running()) {
    if (each.kernel && each.type !== 'exec' && !choices.has(each.kernel.id)) {
      const name = oneLine(each.name || each.path, 100);
      const label = `${name} (${oneLine(each.kernel.name, 60)}, ${each.kernel.id.slice(0, 8)})`;
      choices.set(each.kernel.id, { kernelId: each.kernel.id, name, label });
    }
  }
  return [...choices.values()];
}
