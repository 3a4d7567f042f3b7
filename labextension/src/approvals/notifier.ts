/** Tells a person that code waits, wherever in JupyterLab the person is. */

import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { CommandIDs } from '../commands/ids';
import { oneLine } from '../safety/text';
import { ownerName, sessionName } from '../words';
import type { IExecModel } from '../tokens';
import type { IExecution, ISession } from '../api/types';
import { awaiting } from './entries';
import { seenCode } from './seen';

/** Code that comes on the screen within this time needs no notification. */
const DELAY_MS = 300;

/** One notification's content, for everything that waits in one way. */
interface INotice {
  readonly message: string;
  readonly actions: Notification.IAction[];
}

/** One notification for all that waits: it comes again with each new one, and goes with the last. */
class Notifier<T extends { readonly id: string }> {
  constructor(
    model: IExecModel,
    private readonly _waiting: () => readonly T[],
    private readonly _notice: (waiting: readonly T[], first: T) => INotice
  ) {
    model.changed.connect(() => this._schedule());
    seenCode.changed.connect(() => this._schedule());
    this._schedule();
  }

  private _schedule(): void {
    this._timer ??= window.setTimeout(() => {
      this._timer = null;
      this._update();
    }, DELAY_MS);
  }

  private _update(): void {
    const waiting = this._waiting();
    const fresh = waiting.some(each => !this._known.has(each.id));
    if (!fresh && waiting.length === this._known.size) {
      return;
    }
    this._known = new Set(waiting.map(each => each.id));
    const [first] = waiting;
    if (first === undefined || fresh) {
      this._dismiss();
    }
    if (first === undefined) {
      return;
    }
    const { message, actions } = this._notice(waiting, first);
    const options = { autoClose: false as const, actions };
    if (fresh) {
      this._id = Notification.warning(message, options);
    } else if (this._id !== null) {
      Notification.update({ id: this._id, message, ...options });
    }
  }

  private _dismiss(): void {
    if (this._id !== null) {
      Notification.dismiss(this._id);
      this._id = null;
    }
  }

  private _timer: number | null = null;
  private _known: ReadonlySet<string> = new Set();
  private _id: string | null = null;
}

/** Tell of code that waits for approval, and of code that waits for input. */
export function notifyOfWaiting(
  model: IExecModel,
  commands: CommandRegistry,
  trans: TranslationBundle
): void {
  const nameOf = (owner: string): string => {
    const { tokens, info } = model.state;
    return oneLine(ownerName(trans, owner, tokens.get(owner) ?? null, info), 40);
  };
  new Notifier(
    model,
    () => awaiting(model.state).filter(each => !seenCode.has(each.id)),
    (waiting, first) => {
      const owner = model.state.sessions.get(first.session_id)?.owner;
      return {
        message: approvalMessage(trans, waiting, owner === undefined ? null : nameOf(owner)),
        actions: approvalActions(commands, trans, waiting, first)
      };
    }
  );
  new Notifier(
    model,
    () => [...model.state.sessions.values()].filter(each => each.waits_for === 'input'),
    (waiting, first) => ({
      message:
        waiting.length > 1
          ? trans.__('Code in %1 sessions waits for your input.', waiting.length)
          : trans.__('Code in the session “%1” waits for your input.', oneLine(sessionName(first), 40)),
      actions: [answerAction(commands, trans, first)]
    })
  );
}

function approvalMessage(
  trans: TranslationBundle,
  waiting: readonly IExecution[],
  name: string | null
): string {
  if (waiting.length > 1) {
    return trans._n('one run needs your approval', '%1 runs need your approval', waiting.length);
  }
  const why = oneLine(waiting[0]?.approval?.why ?? '', 60);
  return name === null
    ? trans.__('Code of an agent waits for your approval: %1.', why)
    : trans.__('Code of “%1” waits for your approval: %2.', name, why);
}

function approvalActions(
  commands: CommandRegistry,
  trans: TranslationBundle,
  waiting: readonly IExecution[],
  first: IExecution
): Notification.IAction[] {
  const run = (command: string): void => void commands.execute(command, { executionId: first.id });
  const review = {
    label: trans.__('Review'),
    caption: trans.__('Show the code in the panel, to approve, edit or reject it'),
    displayType: 'accent' as const,
    callback: () => run(CommandIDs.review)
  };
  const reject = {
    label: trans.__('Reject…'),
    caption: trans.__('Reject the code, with a reason if you like'),
    callback: () => run(CommandIDs.reject)
  };
  return waiting.length > 1 ? [review] : [review, reject];
}

function answerAction(
  commands: CommandRegistry,
  trans: TranslationBundle,
  session: ISession
): Notification.IAction {
  return {
    label: trans.__('Answer'),
    caption: trans.__('Show what the code asks in the panel'),
    displayType: 'accent',
    callback: () => void commands.execute(CommandIDs.answerInput, { sessionId: session.id })
  };
}
