/** Services that commands share. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { ServiceManager } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Widget } from '@lumino/widgets';

import { messageOf } from '../api/errors';
import { oneLine } from '../safety/text';
import type { IExecModel } from '../tokens';

export interface ICommandContext {
  readonly commands: CommandRegistry;
  readonly model: IExecModel;
  readonly services: ServiceManager.IManager;
  readonly shell: JupyterFrontEnd.IShell;
  readonly trans: TranslationBundle;
  /** The kernel of what the person looks at, if it has one. */
  currentKernelId(): string | null;
  /** Show the panel. */
  reveal(): void;
  /** Return what comes of it; a refusal is shown, and gives undefined. */
  readonly attempt: <T>(work: Promise<T>) => Promise<T | undefined>;
}

/** Show the server's own sentence. */
export async function attempt<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    Notification.error(oneLine(messageOf(error), 500), { autoClose: 10_000 });
    return undefined;
  }
}

/** Notebooks and consoles have their kernel where JupyterLab's own commands look for it. */
export function kernelIdOf(widget: Widget | null): string | null {
  const holder = widget as {
    sessionContext?: ISessionContextLike;
    context?: { sessionContext?: ISessionContextLike };
  } | null;
  const context = holder?.context?.sessionContext ?? holder?.sessionContext;
  return context?.session?.kernel?.id ?? null;
}

interface ISessionContextLike {
  session?: { kernel?: { id?: string } | null } | null;
}
