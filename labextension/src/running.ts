/** Agents' sessions for JupyterLab's panel of running terminals and kernels. */

import type { IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ISignal } from '@lumino/signaling';

import type { ISession } from './api/types';
import { attempt } from './commands/context';
import { CommandIDs } from './commands/ids';
import { botIcon } from './icons';
import { groups, NO_FILTER } from './model/view';
import { isolationWords, ownerName, sessionName, standingWords } from './words';
import type { IExecModel } from './tokens';

export class RunningAgents implements IRunningSessions.IManager {
  constructor(
    private readonly _model: IExecModel,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle
  ) {}

  get name(): string {
    return this._trans.__("Agents' sessions");
  }

  get shutdownLabel(): string {
    return this._trans.__('Shut Down');
  }

  get shutdownAllLabel(): string {
    return this._trans.__('Shut Down All');
  }

  get shutdownAllConfirmationText(): string {
    return this._trans._n(
      'Shut down 1 agent session? Its variables are lost.',
      'Shut down all %1 agent sessions? Their variables are lost.',
      this.running().length
    );
  }

  get runningChanged(): ISignal<unknown, unknown> {
    return this._model.changed;
  }

  running(): IRunningSessions.IRunningItem[] {
    const { state } = this._model;
    return groups(state, NO_FILTER).flatMap(({ principal, token, sessions }) => {
      const owner = ownerName(this._trans, principal, token, state.info);
      return sessions.map(session => this._item(session, owner));
    });
  }

  /** The feed does it. */
  refreshRunning(): void {}

  shutdownAll(): void {
    for (const { sessions } of groups(this._model.state, NO_FILTER)) {
      sessions.forEach(session => this._shutdown(session));
    }
  }

  private _item(session: ISession, owner: string): IRunningSessions.IRunningItem {
    const state = standingWords(this._trans, session);
    const isolation = isolationWords(this._trans, session.isolation);
    return {
      label: () => sessionName(session),
      labelTitle: () => [sessionName(session), owner, state, isolation].join('\n'),
      detail: () => `${owner}, ${state}`,
      icon: () => botIcon,
      open: () => void this._commands.execute(CommandIDs.showSession, { sessionId: session.id }),
      shutdown: () => this._shutdown(session)
    };
  }

  private _shutdown(session: ISession): void {
    void attempt(this._model.client.shutdown(session.id));
  }
}
