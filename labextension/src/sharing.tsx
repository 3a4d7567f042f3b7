/** Toolbar item of a shared notebook: names the token and its running code, and ends the sharing. */

import type { ISessionContext } from '@jupyterlab/apputils';
import { closeIcon, ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { CommandIDs } from './commands/ids';
import { botIcon } from './icons';
import { isShared, sharing, tokenOf } from './model/sharing';
import { IconButton } from './panel/button';
import { headline, ownerName } from './words';
import { oneLine } from './safety/text';
import type { IExecModel } from './tokens';

export class SharingItem extends ReactWidget {
  constructor(
    private readonly _model: IExecModel,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle,
    private readonly _context: ISessionContext
  ) {
    super();
    this.addClass('jex-SharingItem');
    const update = (): void => this.update();
    _model.changed.connect(update, this);
    _context.kernelChanged.connect(update, this);
  }

  protected render(): React.ReactElement | null {
    const trans = this._trans;
    const { state } = this._model;
    const kernelId = this._context.session?.kernel?.id ?? null;
    const shared = sharing(state, kernelId);
    if (kernelId === null || !isShared(shared)) {
      return null;
    }
    const { grants, sessions, running } = shared;
    const names = new Set([
      ...grants.map(each => oneLine(tokenOf(state, each)?.name ?? each.token_id, 40)),
      ...sessions.map(each => ownerName(trans, each.owner, state.tokens.get(each.owner) ?? null, state.info))
    ]);
    const words =
      names.size === 1
        ? trans.__('Shared with %1', [...names].join())
        : trans.__('Shared with %1 agents', names.size);
    const busy = running === null ? '' : headline(running.code);
    const title = [words, ...names, ...(busy === '' ? [] : [trans.__('It runs: %1', busy)])].join('\n');
    return (
      <div className="jex-Sharing" role="group" aria-label={words}>
        <button
          className="jex-Sharing-open"
          title={title}
          onClick={() => void this._commands.execute(CommandIDs.open)}
        >
          <botIcon.react tag="span" className="jex-Sharing-icon" />
          <span className="jex-Ellipsis">{words}</span>
          {running !== null && (
            <>
              <span className="jex-Dot" data-tone="busy" />
              <code className="jex-Ellipsis">{busy}</code>
            </>
          )}
        </button>
        <IconButton
          icon={closeIcon}
          label={trans.__('Stop sharing this kernel')}
          onClick={() => void this._commands.execute(CommandIDs.stopSharing, { kernelId })}
        />
      </div>
    );
  }
}
