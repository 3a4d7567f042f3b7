/** Tells a person that code waits, wherever in JupyterLab the person is. */

import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { CommandIDs } from '../commands/ids';
import { oneLine } from '../safety/text';
import { ownerName } from '../panel/words';
import type { IExecModel } from '../tokens';
import type { IExecution } from '../api/types';
import { awaiting } from './entries';

/** One notification for all that waits: it comes again with each new one, and goes with the last. */
export class ApprovalNotifier {
  constructor(
    private readonly _model: IExecModel,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle
  ) {
    _model.changed.connect(() => this._update());
    this._update();
  }

  private _update(): void {
    const waiting = awaiting(this._model.state);
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
    const options = { autoClose: false as const, actions: this._actions(waiting, first) };
    const message = this._message(waiting, first);
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

  private _message(waiting: readonly IExecution[], first: IExecution): string {
    const { state } = this._model;
    if (waiting.length > 1) {
      return this._trans.__('%1 executions of agents wait for your approval.', waiting.length);
    }
    const owner = state.sessions.get(first.session_id)?.owner;
    const why = oneLine(first.approval?.why ?? '', 60);
    if (owner === undefined) {
      return this._trans.__('Code of an agent waits for your approval: %1.', why);
    }
    const name = oneLine(ownerName(this._trans, owner, state.tokens.get(owner) ?? null, state.info), 40);
    return this._trans.__('Code of “%1” waits for your approval: %2.', name, why);
  }

  private _actions(waiting: readonly IExecution[], first: IExecution): Notification.IAction[] {
    const run = (command: string): void => {
      void this._commands.execute(command, { executionId: first.id });
    };
    const review = {
      label: this._trans.__('Review'),
      caption: this._trans.__('Show the code in the panel, to approve, edit or reject it'),
      displayType: 'accent' as const,
      callback: () => run(CommandIDs.review)
    };
    if (waiting.length > 1) {
      return [review];
    }
    return [
      review,
      {
        label: this._trans.__('Reject…'),
        caption: this._trans.__('Reject the code, with a reason if you like'),
        callback: () => run(CommandIDs.reject)
      }
    ];
  }

  private _known: ReadonlySet<string> = new Set();
  private _id: string | null = null;
}
